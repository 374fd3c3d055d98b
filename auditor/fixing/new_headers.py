"""The header of a safetensors file under other names: as long as the old one wherever it fits.

The data stays where it is if the header's length stays. A longer header grows by whole blocks of
4,096 bytes, so that a file system that shares blocks between files (btrfs, XFS) can still share
all of the data's: what is shared has to lie at the same place within its block.
"""

import json
from collections.abc import Mapping

from msgspec.structs import replace

from auditor.checkpoint.snapshot import WeightHeader
from auditor.containers.safetensors import LENGTH_BYTES, MAX_HEADER, Header, size_fault
from auditor.errors import CheckpointError
from auditor.messages import named

_OTHER_FORMAT = (
    "{} is not a safetensors file, and its names lie among its weights: load it, call "
    "save_pretrained, and fix what that writes"
)
BLOCK = 4096  # bytes; of ext4, XFS and btrfs


def renamed_header(head: WeightHeader, renames: Mapping[str, str]) -> WeightHeader:
    """The file with its tensors under other names. Raises ValueError with why it cannot be."""
    header = head.parsed
    if isinstance(header, CheckpointError):
        raise ValueError(str(header))  # noqa: TRY004 - of the file
    if not isinstance(header, Header):
        raise ValueError(_OTHER_FORMAT.format(named(head.name)))  # noqa: TRY004 - likewise
    if fault := size_fault(header, head.size):
        raise ValueError(fault)
    if not any(tensor.name in renames for tensor in header.tensors):
        return head
    body = _json(header, renames)
    length = header.header_length
    if len(body) > length:
        length += -(-(len(body) - length) // BLOCK) * BLOCK
    if length > MAX_HEADER:
        raise ValueError(f"the header of {named(head.name)} would pass {MAX_HEADER:,} bytes")
    prefix = length.to_bytes(LENGTH_BYTES, "little") + body.ljust(length)
    longer = length - header.header_length
    size = None if head.size is None else head.size + longer
    return replace(head, prefix=prefix, size=size, known=None)


def _json(header: Header, renames: Mapping[str, str]) -> bytes:
    """As the library writes it: metadata first, then the tensors as their data lies."""
    entries: dict[str, object] = {}
    if header.metadata:
        entries["__metadata__"] = dict(header.metadata)
    for tensor in sorted(header.tensors, key=lambda one: (one.span or (0, 0), one.name)):
        name = renames.get(tensor.name, tensor.name)
        if name in entries:
            raise ValueError(f"two tensors of {named(header.file)} would have one name")
        entries[name] = {
            "dtype": tensor.dtype,
            "shape": tensor.shape,
            "data_offsets": tensor.span,
        }
    return json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
