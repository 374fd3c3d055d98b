"""The JSON parser for safetensors headers, with the rules of the library (Rust's serde_json).

The rules differ from json.loads: repeated fields are refused; repeated names are accepted, but each
entry has to be well formed; a tensor may be a list of three items, a dtype an object of one key;
numbers beyond an f64 are refused even if unused; escapes have to form complete characters.
"""

import json
import math
from typing import Any, NoReturn

from auditor.bounded.json_text import encoding_fault, escape_fault, syntax_fault
from auditor.errors import CheckpointError
from auditor.messages import described, named, quoted
from auditor.tensors import DTYPE_BITS

METADATA = "__metadata__"
FIELDS = ("dtype", "shape", "data_offsets")
MAX_DEPTH = 127  # serde_json refuses the 128th level
U64_MAX = 2**64 - 1

_I32_MAX = 2**31 - 1
_LARGEST = 308  # 1e308 is the largest power of ten that an f64 holds
_POWERS = tuple(float(f"1e{power}") for power in range(_LARGEST + 1))


class JsonObject(tuple[tuple[str, Any], ...]):
    """A JSON object as written: every key with its value, in order, with repeated ones."""

    __slots__ = ()


def parse_fields(file: str, content: bytes) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Return the metadata and each tensor's three fields: known dtypes, integers in range."""
    top = _load(file, content)
    metadata = [value for key, value in top if key == METADATA]
    if len(metadata) > 1:
        raise CheckpointError(f"{named(file)}: its header has {METADATA} twice")
    entries = {
        key: _entry(f"{named(file)}: tensor {quoted(key)}", value)
        for key, value in top
        if key != METADATA
    }
    return (_metadata(file, metadata[0]) if metadata else {}), entries


def _load(file: str, content: bytes) -> JsonObject:
    subject = f"the header of {named(file)}"
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(encoding_fault(subject, content, error)) from None
    try:
        top = json.loads(
            text,
            object_pairs_hook=JsonObject,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_no_constant,
        )
    except json.JSONDecodeError as error:
        raise CheckpointError(syntax_fault(subject, error)) from None
    except _NumberError as error:
        raise CheckpointError(f"{subject} is not valid JSON: {error}") from None
    if not isinstance(top, JsonObject):
        raise CheckpointError(f"{subject} is {described(top)}, expected a JSON object")
    if "\\u" in text and (fault := escape_fault(top)):
        raise CheckpointError(f"{subject} {fault}")
    return top


def _metadata(file: str, value: object) -> dict[str, str]:
    where = f"{named(file)}: {METADATA}"
    if value is None:
        return {}
    if not isinstance(value, JsonObject):
        raise CheckpointError(f"{where} is {described(value)}, expected an object")
    for key, text in value:
        if not isinstance(text, str):
            raise CheckpointError(
                f"{where} has {described(text)} under {quoted(key)}, expected a string"
            )
    return dict(value)


def _entry(tensor: str, value: object) -> dict[str, Any]:
    if isinstance(value, JsonObject):
        fields = _fields(tensor, value)
    elif isinstance(value, list):
        if len(value) != len(FIELDS):
            raise CheckpointError(f"{tensor} is a list of {len(value)}, expected {_listed(FIELDS)}")
        fields = dict(zip(FIELDS, value, strict=True))
    else:
        raise CheckpointError(f"{tensor} is {described(value)}, expected an object")
    fields["dtype"] = _dtype(tensor, fields["dtype"])
    _check_integers(f"{tensor}: shape", fields["shape"])
    _check_integers(f"{tensor}: data_offsets", fields["data_offsets"])
    if len(fields["data_offsets"]) != 2:  # noqa: PLR2004 - begin and end
        count = len(fields["data_offsets"])
        raise CheckpointError(
            f"{tensor}: data_offsets has {count} numbers, expected two: begin and end"
        )
    return fields


def _fields(tensor: str, value: JsonObject) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, field in value:
        if key in fields:
            raise CheckpointError(f"{tensor} has {key} twice")
        if key in FIELDS:
            fields[key] = field
    missing_fields = tuple(field for field in FIELDS if field not in fields)
    if missing_fields:
        raise CheckpointError(f"{tensor} has no {_listed(missing_fields)}")
    return fields


def _dtype(tensor: str, value: object) -> str:
    """Return the dtype's name, which serde also accepts as `{"F32": null}`."""
    name = value
    if isinstance(value, JsonObject) and len(value) == 1 and value[0][1] is None:
        name = value[0][0]
    if not isinstance(name, str):
        raise CheckpointError(
            f"{tensor}: dtype is {described(value)}, expected the name of a dtype"
        )
    if name not in DTYPE_BITS:
        raise CheckpointError(
            f"{tensor}: dtype is {quoted(name)}, expected one of {', '.join(DTYPE_BITS)}"
        )
    return name


def _check_integers(field: str, value: object) -> None:
    if type(value) is not list:
        raise CheckpointError(f"{field} is {described(value)}, expected a list")
    for number in value:
        if type(number) is not int or not 0 <= number <= U64_MAX:
            raise CheckpointError(
                f"{field} has {described(number)}, expected an integer from 0 to 2^64 - 1"
            )


def _listed(names: tuple[str, ...]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


class _NumberError(ValueError):
    """A number that serde_json refuses to read."""


def _integer(digits: str) -> int | float:
    """Return an int if the digits fit u64 or i64, as serde_json does; else the f64."""
    if digits == "-0":
        return -0.0
    if len(digits) <= len(str(-(2**63))) and -(2**63) <= (value := int(digits)) <= U64_MAX:
        return value
    return _float(digits)


def _float(text: str) -> float:
    """Return the f64 that serde_json reads, with the same steps, so that the same texts overflow.

    At most twenty digits are collected in a u64; further digits only move the point. Then the u64
    is multiplied by a power of ten.
    """
    mantissa, _, exponent = text.lower().partition("e")
    integer, _, fraction = mantissa.lstrip("-").partition(".")
    significand, used = _add_digits(0, integer)
    power = len(integer) - used
    significand, used = _add_digits(significand, fraction)
    power -= used
    size = int(exponent.lstrip("+-0")[:11] or "0")
    if size > _I32_MAX:
        significand *= not exponent.startswith("-")  # 1e-99999999999 and 0e99999999999 are 0
    value = _scaled(float(significand), power - size if exponent.startswith("-") else power + size)
    if math.isinf(value):
        raise _NumberError(f"the number {quoted(text)} is out of range")
    return -value if text.startswith("-") else value


def _add_digits(significand: int, digits: str) -> tuple[int, int]:
    """Add digits to the significand up to a u64; return it and the number of digits used."""
    zeros = 0 if significand else len(digits) - len(digits.lstrip("0"))
    used = zeros
    for digit in digits[zeros : zeros + 20]:  # 2^64 - 1 has twenty digits
        grown = significand * 10 + int(digit)
        if grown > U64_MAX:
            break
        significand, used = grown, used + 1
    return significand, used


def _scaled(value: float, power: int) -> float:
    """Multiply a value by a power of ten in serde_json's steps; the result may be infinity."""
    while value and power < -_LARGEST:
        value, power = value / 1e308, power + _LARGEST
    if not value:
        return 0.0
    if power > _LARGEST:
        return math.inf
    return value / _POWERS[-power] if power < 0 else value * _POWERS[power]


def _no_constant(name: str) -> NoReturn:
    raise _NumberError(f"{name} is not a JSON number")
