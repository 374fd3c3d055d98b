"""A file of a recognised format is read or refused, whatever its bytes."""

from random import Random

from support.other_format_bytes import SOUND

from auditor.containers.code_in_files import parse
from auditor.containers.weight_formats import (
    FilePart,
    NeedsBytes,
    PartialFile,
    UnsafeFileError,
)
from auditor.errors import CheckpointError
from fuzz.byte_changes import changed_bytes
from fuzz.target import READ, REFUSED, UNSAFE, Target, Verdict

_NAMES = tuple(SOUND)
_ODD = (b"\xff" * 4, b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\x80\x02", b"[", b"{", b"../", b"\x0a")


def _case(random: Random) -> bytes:
    """Make a changed file, behind the number of its name."""
    number = random.randrange(len(_NAMES))
    content = SOUND[_NAMES[number]]
    for _ in range(random.randrange(1, 4)):
        content = changed_bytes(content, random, _ODD)
    return bytes([number]) + content


def _judge(case: bytes) -> Verdict:
    name, content = _NAMES[case[0]], case[1:]
    parts = (FilePart(0, content),) if content else ()
    try:
        table = parse(name, PartialFile(len(content), parts))
    except UnsafeFileError:
        return Verdict(UNSAFE)
    except CheckpointError:
        return Verdict(REFUSED)
    except NeedsBytes as needs:
        return Verdict(REFUSED, f"needs {needs.span} of {len(content):,} bytes, which are there")
    broken = [one.name for one in table.tensors if one.elements is not None and one.elements < 0]
    return Verdict(READ, f"has negative sizes: {broken}" if broken else None)


TARGETS = {
    "formats": Target(
        "formats",
        "a file of a recognised format is read or refused, whatever its bytes",
        _case,
        _judge,
    )
}
