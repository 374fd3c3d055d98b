r"""Remove secrets in use, as access tokens, from texts: a server may repeat what it was sent.

Texts are redacted where they arrive (bodies and headers of answers) and where they are printed or
stored (`printable`, `json_text`, errors, snapshots). A secret is found in any case, with any
characters between its letters, by its first twelve letters or any 23 others, and encoded: with
escapes (%68, \x68, \u0068, &#104;), as numbers, and in base64.
"""

import re
from binascii import b2a_base64
from collections.abc import Sequence
from string import ascii_lowercase, digits
from urllib.parse import unquote

_LEAST = 6  # letters and digits of a secret; a shorter one would be found in other words
_PART = 12  # letters and digits by which a secret is found, also if the rest was cut off
_LEAST_BASE64 = 10

_ALPHABET = (ascii_lowercase + digits).encode()
_FOLD = bytes(range(256)).lower()
_OTHERS = bytes(set(range(256)) - set(_ALPHABET) - set(_ALPHABET.upper()))

_BETWEEN = b"[^0-9A-Za-z]*+"
_HEX = re.compile(rb"(?:%|\\x|\\[uU]0+|&#[xX]0*)([0-9A-Fa-f]{2});?")
_DECIMAL = re.compile(rb"&#0*([0-9]{2,3});?")
_NESTED = 3  # how often a text may be encoded

_secrets: set[str] = set()
_marks: tuple[bytes, ...] = ()  # folded parts of all forms of the secrets
_pattern = re.compile(b"(?!)")


def hide(secret: str | None) -> None:
    """Remove a secret from all texts from now on, unless it is too short to be told from words."""
    global _marks, _pattern  # noqa: PLW0603 - the secrets of this process
    if not secret or secret in _secrets or len(_folded(secret.encode())) < _LEAST:
        return
    _secrets.add(secret)
    content = secret.encode()
    numbers = "".join(map(str, content)).encode()
    forms = {content, content.hex().encode(), numbers, *_in_base64(content)}
    patterns = [_pattern.pattern, *map(_tolerant, (content, *_in_base64(content)))]
    for form in forms:
        letters = _folded(form)
        size = _PART * len(form) // len(content)
        _marks += tuple(letters[part] for part in _parts(letters, size))
    _pattern = re.compile(b"|".join(patterns))


def hide_user(address: str) -> None:
    """Remove the password of an address, or its user if it has no password, from all texts."""
    if found := re.search(r"//([^/?#]+)@", address):
        user, _, password = map(unquote, found[1].partition(":"))
        hide(password or user)
        if password:
            hide(f"{user}:{password}")  # basic authentication is this in base64


def masked(content: bytes) -> bytes:
    """Replace each secret by as many asterisks, so that offsets and sizes stay as they are."""
    if not _marks or not _is_found(content):
        return content
    content = _pattern.sub(lambda found: b"*" * len(found[0]), content)
    return b"*" * len(content) if _is_found(content) else content


def redacted(text: str) -> str:
    """Replace each secret in a text by asterisks."""
    if not _marks or len(text) < _LEAST:
        return text
    content = text.encode("utf-8", "surrogatepass")
    clean = masked(content)
    return text if clean is content else clean.decode("utf-8", "surrogatepass")


def _folded(content: bytes) -> bytes:
    return content.translate(_FOLD, _OTHERS)


def _is_found(content: bytes) -> bool:
    for _ in range(_NESTED):
        letters = _folded(content)
        for mark in _marks:
            if mark in letters:
                return True
        if not (b"%" in content or b"\\" in content or b"&#" in content):
            return False
        content = _HEX.sub(lambda found: bytes((int(found[1], 16),)), content)
        content = _DECIMAL.sub(lambda found: bytes((int(found[1]) % 256,)), content)
    return False


def _in_base64(content: bytes) -> set[bytes]:
    """Return the letters that base64 has for a content, at each of three offsets in a text."""
    forms = set()
    for offset, start in ((0, 0), (1, 2), (2, 3)):
        end = 8 * (offset + len(content)) // 6
        form = b2a_base64(b"\0" * offset + content)[start:end]
        if len(_folded(form)) >= _LEAST_BASE64:
            forms.add(form)
    return forms


def _tolerant(form: bytes) -> bytes:
    """Return a pattern of a secret or a piece of it, with escapes and characters in between."""
    letters, others = [], b""
    for char in form:
        code = "".join(f"[{digit}{digit.upper()}]" for digit in f"{char:02x}")
        escaped = f"(?:x|[uU]0*+)?{code}|0*+{char}(?![0-9])"
        if chr(char).isalnum():
            plain = f"[{chr(char).lower()}{chr(char).upper()}]"
            letters.append(others + f"(?:{plain}|{escaped})".encode())
            others = b""
        else:
            others += f"(?:{escaped})?".encode() + _BETWEEN
    patterns = [_BETWEEN.join(letters)]
    for part in _parts(letters, _PART):
        before = after = b""
        for letter in letters[: part.start]:
            before = b"(?:" + before + letter + _BETWEEN + b")?"
        for letter in reversed(letters[part.stop :]):
            after = b"(?:" + _BETWEEN + letter + after + b")?"
        patterns.append(before + _BETWEEN.join(letters[part]) + after)
    return b"|".join(patterns)


def _parts(letters: Sequence[object], size: int) -> list[slice]:
    """Return parts of a form that cover it; any piece of twice the size contains one."""
    last = max(0, len(letters) - size)
    return [slice(start, start + size) for start in {*range(0, last, size), last}]
