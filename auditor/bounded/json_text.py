"""A bounded parser of untrusted JSON, such as a config or an index; errors state the position."""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache, cached_property
from itertools import accumulate
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from msgspec import UNSET, DecodeError, ValidationError, convert
from msgspec.json import Decoder, decode
from msgspec.structs import fields

from auditor.errors import CheckpointError
from auditor.messages import described, named, printable, quoted
from auditor.observation import Observation

_T = TypeVar("_T")

# The largest index known, Kimi K2 Thinking's with 208,000 names, has some 25 MB.
MAX_TEXT = 32 * 1024 * 1024
# json.loads stops with a RecursionError at about 990 levels; serde_json, which reads safetensors
# headers, at 128. No config of the Hub comes near either.
MAX_DEPTH = 128
# Commas and opening brackets of a header in the usual form. The headers of DeepSeek-V3 would be
# 736,000 in a single file; a shape with that many dimensions takes 12 MB.
MAX_VALUES = 1_500_000
# A config holds fewer: one with the 22,000 classes of ImageNet, by number and by name, 44,000.
# 290,000 were measured at 100 MB more than a usual config.
MAX_TEXT_VALUES = 150_000
# Digits that Python's int() accepts with any setting; by default it accepts 4,300.
MAX_DIGITS = 640

# The form in which transformers writes floats that JSON does not have: {"__float__": "Infinity"}.
FLOAT = b"__float__"
_FLOATS = {name: float(name) for name in ("Infinity", "-Infinity", "NaN")}

# Possessive, because the engine stores positions to backtrack to: 1.8 GB for 15 million escapes.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BARE_STRING = re.compile(rb'"[^"]*(?:"|\Z)')
_UNMARKED = bytes(byte for byte in range(256) if byte not in b'[]{},"')
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")  # +1 and -1 as signed bytes
_POINTER = b"version https://git-lfs.github.com/spec/"
_POINTER_SIZE = re.compile(rb"^size (\d{1,19})\r?$", re.MULTILINE)
_CONFLICT = re.compile(r"^<{7}(?: |$)", re.MULTILINE)


class ParsedArray(list[Any]):
    """An array of an untrusted text, which a table may be asked for: no table contains it.

    Python's list cannot be looked up in a dict or a set, and raises a TypeError: wherever a config
    states `["yarn"]` in place of a word, looking the word up would end the audit.
    """

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]


class ParsedObject(dict[str, Any]):
    """An object of an untrusted text, which a table may be asked for, as for a ParsedArray."""

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]


class Loaded(NamedTuple):
    """A JSON object, and the keys that occur twice in an object (the last value counts)."""

    value: dict[str, object]
    repeated: tuple[str, ...]  # sorted


def parse_object(content: bytes, what: str) -> dict[str, object]:
    """Parse a JSON object; `what` names the file in the error.

    NaN and Infinity are accepted, as in transformers: state space models have
    `"time_step_limit": [0.0, Infinity]`. A byte order mark is refused: transformers opens its files
    as utf-8, and json.loads then refuses the mark.
    """
    return load_object(content, what).value


class JsonFile(Observation, frozen=True, dict=True):
    """A file of a repository, byte for byte; its JSON is parsed once, on first use."""

    name: str
    content: bytes | None  # None: it was not read

    @cached_property
    def _parsed(self) -> Mapping[str, Any] | str:
        """The JSON object, or the sentence that says why the file is not one."""
        try:
            return parse_object(self.content or b"", self.name)
        except CheckpointError as error:
            return str(error)

    @property
    def object(self) -> Mapping[str, Any]:
        """The JSON object in the file; raise CheckpointError if it is not one."""
        if isinstance(self._parsed, str):
            raise CheckpointError(self._parsed)
        return self._parsed

    @property
    def values(self) -> Mapping[str, Any]:
        """The JSON object in the file; {} for invalid JSON, which another rule reports."""
        return {} if isinstance(self._parsed, str) else self._parsed


def load_object(
    content: bytes, what: str, *, size: int = MAX_TEXT, values: int = MAX_TEXT_VALUES
) -> Loaded:
    """Parse a JSON object of at most `size` bytes and `values` values, and find repeated keys."""
    subject = named(what)
    text = _decoded(content, subject, size)
    if fault := bounds_fault(content, MAX_DEPTH, values):
        raise CheckpointError(f"{subject} {fault}")
    repeated: set[str] = set()

    def collect(pairs: list[tuple[str, object]]) -> ParsedObject:
        members = ParsedObject((key, _array(value)) for key, value in pairs)
        if len(members) != len(pairs):
            repeated.update(_twice(key for key, _ in pairs))
        return members

    try:
        value = json.loads(text, object_pairs_hook=collect, parse_int=_bounded_int)
    except json.JSONDecodeError as error:
        raise CheckpointError(syntax_fault(subject, error)) from None
    except _TooManyDigitsError as error:
        where = position(text, text.find(error.digits))
        raise CheckpointError(
            f"{subject} has an integer of {len(error.digits):,} digits at {where}, "
            f"expected at most {MAX_DIGITS:,}"
        ) from None
    if not isinstance(value, dict):
        raise CheckpointError(f"{subject} is {described(value)}, expected a JSON object")
    if "\\u" in text and (fault := escape_fault(value)):
        raise CheckpointError(f"{subject} {fault}")
    return Loaded(value, tuple(sorted(repeated)))


def _array(value: object) -> object:
    """Return the value with each list in it as a ParsedArray; objects in it have been made."""
    return ParsedArray(map(_array, value)) if isinstance(value, list) else value


def is_identical(value: object, other: object) -> bool:
    """Return whether two JSON values are equal and of one type; in Python, true equals 1."""
    return _kind(value) is _kind(other) and value == other


def _kind(value: object) -> type:
    return next((kind for kind in (list, dict) if isinstance(value, kind)), type(value))


def with_floats(value: object) -> object:
    """Return the value with each `{"__float__": ...}` object replaced by its float."""
    match value:
        case {"__float__": str(name), **others} if not others and name in _FLOATS:
            return _FLOATS[name]
        case dict():
            return ParsedObject((key, with_floats(item)) for key, item in value.items())
        case list():
            return ParsedArray(map(with_floats, value))
        case _:
            return value


def lfs_pointer_size(prefix: bytes) -> int | None:
    """Return the file size in a Git LFS pointer; None if the bytes are not a pointer."""
    if not prefix.startswith(_POINTER):
        return None
    size = _POINTER_SIZE.search(prefix, 0, 1024)  # the specification's limit for a pointer
    return int(size[1]) if size else None


def lfs_fault(subject: str, prefix: bytes) -> str | None:
    """Return a sentence that reports a Git LFS pointer in place of a file; None for others."""
    size = lfs_pointer_size(prefix)
    if size is None:
        return None
    return (
        f"{subject} is a Git LFS pointer to a file of {size:,} bytes, not the file: it was "
        f"never fetched (run `git lfs pull`), or the pointer itself was uploaded"
    )


def _decoded(content: bytes, subject: str, most: int) -> str:
    """Decode UTF-8; raise CheckpointError for any other content.

    Also raise it for content that is empty, too long, a Git LFS pointer, or begins with a BOM.
    """
    if len(content) > most:
        raise CheckpointError(f"{subject} has {len(content):,} bytes, expected at most {most:,}")
    if not content.strip():
        raise CheckpointError(f"{subject} is empty: {len(content)} bytes, expected a JSON object")
    if fault := lfs_fault(subject, content):
        raise CheckpointError(fault)
    if content.startswith(b"\xef\xbb\xbf"):
        raise CheckpointError(
            f"{subject} begins with a byte order mark (EF BB BF), which transformers "
            f"refuses: save it as UTF-8 without the mark"
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(encoding_fault(subject, content, error)) from None


def encoding_fault(subject: str, content: bytes, error: UnicodeDecodeError) -> str:
    """Return a sentence that reports bytes that are not UTF-8."""
    before = content[: error.start].decode()
    guess = " (it looks like UTF-16)" if content[:2] in {b"\xff\xfe", b"\xfe\xff"} else ""
    return (
        f"{subject} is not UTF-8{guess}: byte 0x{content[error.start]:02x} "
        f"at {position(before, len(before))}"
    )


def syntax_fault(subject: str, error: json.JSONDecodeError) -> str:
    """Return a sentence that says why a text is not JSON, and where."""
    if conflict := _CONFLICT.search(error.doc):
        line = error.doc.count("\n", 0, conflict.start()) + 1
        return (
            f"{subject} has an unresolved git merge conflict: "
            f"line {line} is {quoted(error.doc[conflict.start() :].split(chr(10), 1)[0])}"
        )
    where = f"line {error.lineno} column {error.colno}"
    excerpt = error.doc[error.pos : error.pos + 30]
    if error.msg == "Extra data":
        return f"{subject} continues after the end of its JSON: {quoted(excerpt)} at {where}"
    if not excerpt:
        return f"{subject} is cut off: its JSON does not end before {where}"
    if error.msg.startswith("Unterminated string"):
        return f"{subject} is cut off: the string that begins at {where} has no end"
    fault = error.msg.removesuffix(" at")
    fault = f"{subject} is not JSON: {fault} at {where}, before {quoted(excerpt)}"
    is_no_json = error.doc.lstrip()[:1] not in {"{", "["} and not error.doc[: error.pos].strip()
    return f"{fault}; it is perhaps an answer of a server, saved as a file" if is_no_json else fault


def bounds_fault(content: bytes, depth: int, most: int = MAX_VALUES) -> str | None:
    """Return a clause on why a JSON text is too deep or too large; None if it is neither."""
    marks = _marks(content)
    brackets = marks.translate(_STEPS, b",")
    values = len(marks) - len(brackets) // 2  # each comma, and each pair of brackets
    if values > most:
        return f"has some {values:,} JSON values, expected at most {most:,}"
    steps = memoryview(brackets).cast("b")
    deepest = max(accumulate(steps), default=0)
    if deepest > depth:
        return f"is nested {deepest:,} levels deep, expected at most {depth}"
    return None


def escape_fault(value: object) -> str | None:
    """Return a clause on why a string in the value cannot be encoded; None if all can.

    json.loads accepts half a surrogate pair; UTF-8 and Rust do not have such strings.
    """
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        return f"has the escape \\u{ord(error.object[error.start]):04x}, half a character"
    return None


def position(text: str, offset: int) -> str:
    """Return an offset as `line 3 column 7`, both counted from 1."""
    line = text.count("\n", 0, offset) + 1
    return f"line {line} column {offset - text.rfind(chr(10), 0, offset)}"


def _marks(content: bytes) -> bytes:
    """Return the brackets and commas of a JSON text in order, without those inside strings.

    Removing a pair of adjacent quotes does not change which other bytes are inside strings; so
    strings without brackets and commas are removed first, which is cheap.
    """
    if b"\\" in content:
        content = _STRING.sub(b"", content)
    marks = content.translate(None, _UNMARKED).replace(b'""', b"")
    return _BARE_STRING.sub(b"", marks) if b'"' in marks else marks


def _twice(keys: Iterable[str]) -> set[str]:
    seen: set[str] = set()
    return {key for key in keys if key in seen or seen.add(key)}  # type: ignore[func-returns-value]


class _TooManyDigitsError(ValueError):
    def __init__(self, digits: str) -> None:
        super().__init__()
        self.digits = digits


def _bounded_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise _TooManyDigitsError(digits)
    return int(digits)


# msgspec's names of types -> words of a message.
_TYPES = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
    "array": "a list",
    "object": "an object",
}
_HEX, _DIGITS = re.compile(r"a string matching regex '\^\[0-9a-f]\{(\d+)}\$'"), r"\1 hex digits"


_EXAMINING = Lock()
_EXAMINED = set[object]()


def examined(type_: type[_T]) -> type[_T]:
    """Return a type that msgspec has examined, for use by several threads.

    msgspec 0.22 examines a type when it first decodes into it. If two threads begin to do so with
    a Struct that contains another Struct, the process can end with a segmentation fault.
    """
    if type_ not in _EXAMINED:
        with _EXAMINING:
            Decoder(type_)
            _EXAMINED.add(type_)
    return type_


def converted(value: object, type_: type[_T], subject: str = "it") -> _T:
    """Convert a JSON value to a msgspec type; raise CheckpointError if it does not fit the type."""
    try:
        return convert(value, examined(type_))
    except ValidationError as error:
        raise CheckpointError(_type_fault(str(error), subject, value)) from None


def usable_fields(value: object, type_: type[_T]) -> _T:
    """Convert an object to a Struct; the defaults replace values of a wrong type."""
    values = value if isinstance(value, dict) else {}
    usable: dict[str, object] = {}
    for key, name, field_type in _fields(type_):  # type: ignore[arg-type]
        with suppress(ValidationError):
            usable |= {name: convert(values[key], examined(field_type))} if key in values else {}
    return type_(**usable)


@cache
def _fields(type_: type[Any]) -> tuple[tuple[str, str, Any], ...]:
    return tuple((field.encode_name, field.name, field.type) for field in fields(type_))


def decoded(content: bytes, type_: type[_T], subject: str = "it") -> _T:
    """Decode JSON into a msgspec type; values for which the type has no field take no memory."""
    try:
        return decode(content, type=examined(type_))
    except ValidationError as error:
        raise CheckpointError(_type_fault(str(error), subject)) from None
    except (DecodeError, UnicodeDecodeError, RecursionError) as error:
        detail = str(error).removeprefix("JSON is malformed: ")
        raise CheckpointError(f"{subject} is not JSON: {detail}") from None


def _type_fault(error: str, subject: str, value: object = UNSET) -> str:
    """Reword an error of msgspec as `X is Y, expected Z`, with the value if it is known."""
    error, _, place = error.partition(" - at `$")
    place = printable(place.removesuffix("`").removeprefix("."))
    where = subject if not place else place if subject == "it" else f"{subject}: {place}"
    if match := re.fullmatch(r"(?s)Object (missing required|contains unknown) field `(.*)`", error):
        has = "has no key" if match[1] == "missing required" else "has the unknown key"
        return f"{where} {has} {quoted(match[2])}"
    for index, key in re.findall(r"\[(\d+)\]|(\w+)", place):
        if isinstance(value, dict | list):
            value = value[int(index)] if isinstance(value, list) else value.get(key)
    match = re.fullmatch(r"Expected `(.*?)`(.*?)(?:, got `(.*?)`)?", error)
    observed = "invalid" if value is UNSET else described(value)
    if match is None:
        return f"{where} is {observed}, {printable(error.lower())}"
    words = " or ".join(_TYPES.get(one, one) for one in match[1].split(" | ")) + match[2]
    if value is UNSET:
        observed = _TYPES.get(match[3], "invalid")
    return f"{where} is {observed}, expected {_HEX.sub(_DIGITS, words)}"
