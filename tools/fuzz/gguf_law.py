"""A GGUF header that is read is read as the gguf library reads it, or it is refused."""

import struct
import tempfile
import warnings
from functools import cache
from pathlib import Path
from random import Random

import gguf
from support.gguf_files import (
    ARRAY,
    BOOL,
    F32,
    I8,
    I16,
    I32,
    I64,
    STRING,
    U8,
    U16,
    U32,
    U64,
    Tensor,
    array,
    gguf_bytes,
)

from auditor.containers.gguf import GgufHeader, parse
from auditor.containers.weight_formats import FilePart, PartialFile
from auditor.errors import CheckpointError
from fuzz.target import READ, REFUSED, Target, Verdict


@cache
def _seeds() -> tuple[bytes, ...]:
    pairs = [
        ("general.architecture", STRING, "llama"),
        ("llama.block_count", U32, 2),
        ("general.alignment", U32, 64),
        ("x.on", BOOL, True),
        ("x.many", ARRAY, (U32, [1, 2, 3])),
        ("x.words", ARRAY, (STRING, ["a", "b\u00e9", ""])),
        ("x.deep", ARRAY, array(ARRAY, [array(U8, [1, 2]), array(STRING, ["a"])])),
        ("x.size", U64, 2**40),
        ("x.rate", F32, 0.5),
    ]
    tensors = [Tensor("a.weight", (2, 32)), Tensor("b", (3, 256), 12), Tensor("c", (4, 32), 8)]
    wrong = [
        [("general.alignment", kind, 32)] for kind in (U8, I8, U16, I16, I32, U64, I64, F32, BOOL)
    ]
    narrow = [pair for pair in pairs if pair[0] != "general.alignment"]
    return (
        gguf_bytes(pairs, tensors, alignment=64),
        gguf_bytes(narrow, tensors),
        gguf_bytes(narrow, tensors, order=">"),
        gguf_bytes(narrow[:2], tensors[:1], version=2),
        gguf_bytes([], [Tensor("t", ()), Tensor("u", (1,), 1), Tensor("v", (1, 2, 3, 32), 2)]),
        gguf_bytes(),
        *(gguf_bytes(one, tensors) for one in wrong),
    )


def _case(random: Random) -> bytes:
    changed = bytearray(random.choice(_seeds()))
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        at = random.randrange(len(changed) + 1)
        small = random.choice((0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 12, 13, 31, 32, 64, 255))
        piece = random.choice(
            (
                random.randbytes(1),
                bytes([small]),
                struct.pack("<I", small),
                struct.pack("<Q", random.choice((small, 2**63, 2**64 - 1, 2**32, len(changed)))),
            )
        )
        changed[at : at + random.choice((len(piece), len(piece), 0))] = piece
    if random.random() < 0.1:
        del changed[random.randrange(len(changed)) :]
    return bytes(changed)


def _judge(content: bytes) -> Verdict:
    """Only of what is read: the library would look at 2^60 items that a file declares."""
    try:
        header = parse(
            "m.gguf", PartialFile(len(content), (FilePart(0, content),) if content else ())
        )
    except CheckpointError:
        return Verdict(REFUSED)
    if header.size_faults:
        return Verdict(REFUSED)
    return Verdict(READ, _differs(header, content))


def _differs(header: GgufHeader, content: bytes) -> str | None:
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        Path(file.name).write_bytes(content)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # numpy's, of products that overflow
                theirs = gguf.GGUFReader(file.name)
        except Exception as error:  # noqa: BLE001 - whatever hostile bytes make of it
            return _unless_its_own(error, header)
    table = {
        one.name: (one.tensor_type.name, tuple(map(int, one.shape[::-1])), int(one.data_offset))
        for one in theirs.tensors
    }
    ours = {
        one.name: (one.dtype, one.shape, header.data_start + one.span.start)
        for one in header.tensors
        if one.span
    }
    if ours != table:
        return f"has {ours}, and to the library {table}"
    keys = [key for key in theirs.fields if not key.startswith("GGUF.")]
    if list(header.metadata) != keys:
        return f"has the keys {list(header.metadata)}, and to the library {keys}"
    return None


def _unless_its_own(error: Exception, header: GgufHeader) -> str | None:
    """What the library cannot read and the format can: its own three keys, and empty tensors."""
    own = isinstance(error, KeyError) and "GGUF." in str(error)
    empty = any(one.elements == 0 for one in header.tensors)
    known = own or empty or header.big_endian
    return None if known else f"is read, and the library raises {type(error).__name__}: {error}"


TARGETS = {
    "gguf": Target(
        "gguf",
        "a GGUF header that is read is read as the gguf library reads it, or it is refused",
        _case,
        _judge,
    )
}
