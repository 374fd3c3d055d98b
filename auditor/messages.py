"""How untrusted names and values are shown in a message: quoted, escaped and cut."""

import re
from collections.abc import Iterable, Sequence

_CUT = 100  # characters of a name or a value that a message shows
_NEARLY = 0.75  # of the letters: one slip in four, two in eight
_LISTED = 5  # names of one list
_PLAIN = re.compile(r"[\w./+-]{1,200}", re.ASCII)


def quoted(text: str) -> str:
    """`'model.weight'`: what a terminal would act upon is escaped, the middle of a long one cut."""
    if len(text) > _CUT:
        text = f"{text[: _CUT // 2]}...{text[-_CUT // 2 :]}"
    return repr(text)


def named(file: str) -> str:
    """A file's name as the subject of a sentence: quoted only where it is not plain."""
    return file if _PLAIN.fullmatch(file) else quoted(file)


def described(value: object) -> str:
    """A JSON value in a few words: a scalar as written, `a list`, `an object`."""
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
        case list() if type(value) is list:
            return "a list"
        case _:
            return "an object"


def listed(names: Sequence[str]) -> str:
    """The first five names, quoted, and how many more there are."""
    more = len(names) - _LISTED
    shown = ", ".join(quoted(name) for name in names[:_LISTED])
    return f"{shown} and {more} more" if more > 0 else shown


def meant(word: str, known: Iterable[str]) -> str:
    """` (did you mean X?)` where a known word is nearly the same; else nothing."""
    from difflib import get_close_matches  # noqa: PLC0415 - only where something is wrong

    by_case = {one.casefold(): one for one in known}
    close = get_close_matches(word[:_CUT].casefold(), by_case, n=1, cutoff=_NEARLY)
    return f" (did you mean {by_case[close[0]]}?)" if close else ""
