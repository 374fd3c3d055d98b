r"""Remove secrets in use, as access tokens, from texts: a server may repeat what it was sent.

Texts are redacted where they arrive (bodies and headers of answers) and where they are printed or
stored (`printable`, `json_text`, errors, snapshots). A complete secret becomes asterisks, in any
case and with any characters between its letters. A line or a string in quotes that has a secret's
first twelve letters or any 23 others, or a secret encoded with escapes (%68, \x68, \u0068, &#104;),
as numbers, or in base64, becomes asterisks as a whole.
"""

import re
from binascii import b2a_base64
from string import ascii_lowercase, digits
from urllib.parse import unquote

_LEAST = 6  # letters and digits of a secret; a shorter one would be found in other words
_PART = 12  # letters and digits by which a secret is found, also if the rest was cut off
_LEAST_BASE64 = 10

_ALPHABET = (ascii_lowercase + digits).encode()
_FOLD = bytes(range(256)).lower()
_OTHERS = bytes(set(range(256)) - set(_ALPHABET) - set(_ALPHABET.upper()))

_HEX = re.compile(rb"(?:%|\\x|\\[uU]0+|&#[xX]0*)([0-9A-Fa-f]{2});?")
_DECIMAL = re.compile(rb"&#0*([0-9]{2,3});?")
_PIECE = re.compile(rb'(?:[^"\\\r\n]++|\\.)+')  # a line, or a string in quotes
_NESTED = 3  # how often a text may be encoded

_secrets: set[str] = set()
_marks: tuple[bytes, ...] = ()  # folded parts of all forms of the secrets
_patterns: tuple[re.Pattern[bytes], ...] = ()  # of complete secrets


def hide(secret: str | None) -> None:
    """Remove a secret from all texts from now on, unless it is too short to be told from words."""
    global _marks, _patterns  # noqa: PLW0603 - the secrets of this process
    if not secret or secret in _secrets or len(_folded(secret.encode())) < _LEAST:
        return
    _secrets.add(secret)
    content = secret.encode()
    letters = [bytes((char,)) for char in _folded(content)]
    _patterns += (re.compile(b"[^0-9A-Za-z]*+".join(letters), re.IGNORECASE),)
    numbers = "".join(map(str, content)).encode()
    for form in {content, content.hex().encode(), numbers, *_in_base64(content)}:
        folded = _folded(form)
        size = _PART * len(form) // len(content)
        last = max(0, len(folded) - size)  # any piece of twice the size contains a mark
        _marks += tuple(folded[at : at + size] for at in {*range(0, last, size), last})


def hide_user(address: str) -> None:
    """Remove the password of an address, or its user if it has no password, from all texts."""
    if found := re.search(r"//([^/?#]+)@", address):
        user, _, password = map(unquote, found[1].partition(":"))
        hide(password or user)
        if password:
            hide(f"{user}:{password}")  # basic authentication is this in base64


def masked(content: bytes) -> bytes:
    """Replace each secret by as many asterisks, so that offsets and sizes stay as they are."""
    if not _is_found(content):
        return content
    for pattern in _patterns:
        content = pattern.sub(_asterisks, content)
    if _is_found(content):
        content = _PIECE.sub(lambda one: _asterisks(one) if _is_found(one[0]) else one[0], content)
    return b"*" * len(content) if _is_found(content) else content


def _asterisks(found: re.Match[bytes]) -> bytes:
    return b"*" * len(found[0])


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
    for _ in range(_NESTED if _marks else 0):
        letters = _folded(content)
        if any(mark in letters for mark in _marks):
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
