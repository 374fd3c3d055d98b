"""The reader of CTranslate2's model.bin: the headers of its variables, one after another.

By model_spec.py of CTranslate2 4: version, name, revision and number of variables; each variable
has a name (its length in two bytes, then a zero at its end), a rank, 4 bytes for each dimension,
the dtype, and the length of its bytes, which follow. Aliases are at the end.
"""

from collections.abc import Iterator
from math import prod

from auditor.containers.weight_formats import PartialFile, Table
from auditor.errors import CheckpointError
from auditor.messages import named
from auditor.tensors import Span, StoredTensor

_DTYPES = {0: "F32", 1: "I8", 2: "I16", 3: "I32", 4: "F16", 5: "BF16"}
_OLDEST = 4  # the version from which on a dtype and a length are stored
_MOST = 200_000  # variables


def parse(file: str, sparse: PartialFile) -> Table:
    """Return the variables, and a fault if the file ends before they do."""
    tensors: list[StoredTensor] = []
    faults: list[str] = []
    try:
        tensors.extend(_variables(file, sparse))
    except EOFError as error:
        faults.append(f"{named(file)} is truncated after {sparse.size:,} bytes: {error}")
    tensors.sort(key=lambda one: one.name)
    return Table(file=file, tensors=tuple(tensors), size_faults=tuple(faults))


def _variables(file: str, sparse: PartialFile) -> Iterator[StoredTensor]:
    at = 0

    def number(width: int) -> int:
        return int.from_bytes(take(width), "little")

    def take(length: int) -> bytes:
        nonlocal at
        if at + length > sparse.size:
            raise EOFError(f"expected at least {at + length:,}")
        data = sparse.read(Span(at, at + length))
        at += length
        return data

    version = number(4)
    take(number(2))
    if version < _OLDEST:
        raise CheckpointError(f"it is of version {version}, expected {_OLDEST} or later")
    number(4)
    count = number(4)
    if count > _MOST:
        raise CheckpointError(f"it has {count:,} variables, expected at most {_MOST:,}")
    for place in range(count):
        name = take(number(2)).rstrip(b"\0").decode(errors="replace")
        shape = tuple(number(4) for _ in range(number(1)))
        dtype, length = number(1), number(4)
        if at + length > sparse.size:
            raise EOFError(f"variable {place + 1:,} of {count:,} ends at byte {at + length:,}")
        span = Span(at, at + length)
        at += length
        yield StoredTensor(name, _DTYPES.get(dtype), shape, prod(shape), file, span)
    for _ in range(2 * number(4)):
        take(number(2))
