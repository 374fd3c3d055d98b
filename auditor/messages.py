"""Turn untrusted names and values into text for messages: escape, quote, describe and cut them."""

import json
import re
import sys
from collections.abc import Iterable, Sequence

from auditor.redaction import redacted

_CUT = 100  # characters of a name or a value that a message shows
_NEARLY = 0.75  # ratio of equal letters: one wrong letter in four, two in eight
_LISTED = 5  # names of one list
_ITEMS = 4  # items of a list or an object in a sentence
_LONG = 10**21  # integers from here on are shortened instead of grouped by thousands
_PLAIN = re.compile(r"[\w./+-]{1,200}", re.ASCII)
# Fillers, joiners and variation selectors, which are invisible although str.isprintable is true.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)


def log_line(line: str) -> None:
    """Pass a line to the logger `auditor`, unless nothing has imported `logging`."""
    if logging := sys.modules.get("logging"):
        logging.getLogger("auditor").info("%s", printable(line))


def printable(text: str) -> str:
    r"""Escape invisible characters and those that control a terminal or a log: ESC as \x1b.

    Secrets in use, as access tokens, become asterisks.

    Three kinds of characters are escaped: those that str.isprintable denies (controls, line ends,
    bidi overrides, lone surrogates, spaces other than U+0020), invisible letters, and the second
    of two colons or two number signs, because CI services run log lines that begin with two as
    commands: `::error::` on GitHub, `##[error]` and `##vso[...]` on GitHub and Azure.

    Each function that writes output escapes its lines; escaping twice changes nothing. A backslash
    is not escaped, so that Windows paths stay readable; only JSON tells ESC from \x1b.
    """
    text = redacted(text)
    if text.isprintable() and (text.isascii() or not _INVISIBLE.search(text)):
        shown = text
    else:
        shown = "".join(
            char if char.isprintable() and not _INVISIBLE.match(char) else _code(char)
            for char in text
        )
    return shown.replace("::", r":\x3a").replace("##", r"#\x23")


def all_printable(texts: Iterable[str]) -> list[str]:
    """Escape each text, as `printable` does."""
    return [printable(text) for text in texts]


def _code(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def quoted(text: str) -> str:
    """Return a name as Python's repr, `'model.weight'`; the middle of a long name is left out."""
    if len(text) > _CUT:
        text = redacted(text)
        text = f"{text[: _CUT // 2]}...{text[-_CUT // 2 :]}"
    return printable(repr(text))


def named(file: str) -> str:
    """Return a file's name for a sentence, in quotes only if it has unusual characters."""
    return file if _PLAIN.fullmatch(file) else quoted(file)


def described(value: object) -> str:
    """Describe a JSON value in a few words: a scalar as it is written, `a list`, `an object`."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"the string {quoted(value)}"
        case int() | float():
            digits = str(value)
            return digits if len(digits) <= _CUT else f"{digits[:20]}... ({len(digits)} digits)"
        case list():
            return "a list"
        case _:
            return "an object"


def shown(value: object) -> str:
    """Return a JSON value as it is written, with thousands grouped; long lists are cut."""
    match value:
        case bool() | None:
            return {True: "true", False: "false", None: "null"}[value]
        case int():
            return f"{value:,}" if abs(value) < _LONG else described(value)
        case list() | tuple() if len(value) > 2 * _ITEMS:
            return f"[{', '.join(map(str, value[:_ITEMS]))}, ...]"
        case str() | list() | tuple():
            return json.dumps(value, ensure_ascii=False)
        case dict():
            keys = [f"{json.dumps(key)}: ..." for key in list(value)[:_ITEMS]]
            return f"{{{', '.join([*keys, '...'] if len(value) > _ITEMS else keys)}}}"
    return str(value)


def listed(names: Sequence[str]) -> str:
    """Return the first five names in quotes, then how many more there are."""
    more = len(names) - _LISTED
    shown = ", ".join(quoted(name) for name in names[:_LISTED])
    return f"{shown} and {more} more" if more > 0 else shown


def shape_text(shape: object) -> str:
    """Return a shape as text, `(768,)`; () is one number."""
    return "one number" if shape == () else str(shape)


def meant(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean X?)` if a known word X resembles `word`, else an empty string."""
    from difflib import get_close_matches  # noqa: PLC0415 - only after a slip

    by_case = {one.casefold(): one for one in known}
    close = get_close_matches(word[:_CUT].casefold(), by_case, n=1, cutoff=_NEARLY)
    return f" (did you mean {by_case[close[0]]}?)" if close else ""
