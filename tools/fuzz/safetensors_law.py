"""Law 7: a header is accepted if and only if the safetensors library accepts it, and read alike."""

from functools import cache
from random import Random

from safetensors import SafetensorError, deserialize
from support.builders import framed, safetensors_bytes

from auditor.containers.safetensors import parse_header, size_fault
from auditor.errors import CheckpointError
from auditor.tensors import DTYPE_BITS
from fuzz import json_forms
from fuzz.target import READ, REFUSED, Target, Verdict

_NAMES = (
    "a",
    "b.weight",
    "",
    "é",
    "\\",
    '"',
    "x:y",
    "__metadata__x",
    "\u2028",
    "\U0001f600",
    "a b",
)
_U8 = '{"dtype":"U8","shape":[2],"data_offsets":[%d,%d]}'


@cache
def _seeds() -> tuple[bytes, ...]:
    whole = {4: 2, 6: 4}
    described = {
        f"t{number}": (dtype, (number % 3, whole.get(bits, 1)))
        for number, (dtype, bits) in enumerate(DTYPE_BITS.items())
    }
    named = dict.fromkeys(_NAMES, ("F32", (1,)))
    two = '{"a":' + _U8 % (0, 2) + ',"b":' + _U8 % (2, 4) + "}"
    turned = '{"b":' + _U8 % (2, 4) + ',"__metadata__":{"k":"v","l":""},"a":' + _U8 % (0, 2) + "}"
    return (
        safetensors_bytes(described),
        safetensors_bytes(named, metadata={"format": "pt", "a": "\\u"}),
        safetensors_bytes({"a": ("F32", (2, 3))}, metadata={}),
        safetensors_bytes({"s": ("I64", ()), "z": ("F16", (0, 5))}, align=64),
        framed(two, bytes(4)),
        framed(turned, bytes(4)),
        framed(" " + two + " \n", bytes(4)),
        framed("{}"),
        b"",
    )


def _case(random: Random) -> bytes:
    content = random.choice(_seeds())
    length = int.from_bytes(content[:8], "little")
    header, data = content[8 : 8 + length], content[8 + length :]
    changed = json_forms.mutated(header, random)
    declared = None
    if random.random() < 0.1:
        declared = random.choice((length, len(changed) + 1, 2**63, 100_000_001))
        data = random.choice((data, data, data[:-1], data + b"\0", b""))
    return framed(changed, data, length=declared)


def _judge(content: bytes) -> Verdict:
    ours, theirs = observed(content), expected(content)
    fault = None if ours == theirs else f"is {ours}, and to the library {theirs}"
    return Verdict(READ if ours is not None else REFUSED, fault)


def observed(content: bytes) -> dict[str, object] | None:
    """What we make of a file: name -> (dtype, shape, bytes of data); None: it is refused."""
    try:
        header = parse_header("model.safetensors", content)
    except CheckpointError:
        return None
    if size_fault(header, len(content)):
        return None
    return {
        one.name: (one.dtype, one.shape, one.span.length if one.span else None)
        for one in header.tensors
    }


def expected(content: bytes) -> dict[str, object] | None:
    """What the library makes of it, in the same words."""
    try:
        tensors = deserialize(content)
    except SafetensorError:
        return None
    return {name: (one["dtype"], tuple(one["shape"]), len(one["data"])) for name, one in tensors}


TARGETS = {
    "safetensors": Target(
        "safetensors",
        "a header is accepted if and only if the safetensors library accepts it, and read alike",
        _case,
        _judge,
    )
}
