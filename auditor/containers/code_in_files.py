"""The reader of any file: whether loading it may run code, and which format it has.

Both are judged by the first bytes, not by the name alone. Bare pickles, NumPy's arrays of objects
and torch's archives are followed wherever they lie. Other archives, compressed files and HDF5 may
contain code and are not looked into: UnfollowedError.
"""

import re
import zlib

from auditor.bounded.pickle_machine import MAX_PICKLE, follow_pickle
from auditor.containers import dcp, torch_file
from auditor.containers.other_formats import format_of, read_format
from auditor.containers.weight_formats import (
    END,
    METADATA,
    PICKLED,
    START,
    PartialFile,
    Table,
    UnfollowedError,
    UnsafeFileError,
    not_followed,
)
from auditor.errors import CheckpointError
from auditor.messages import named
from auditor.names.parts import file_name
from auditor.tensors import Span

# Weights alone: transformers' TensorFlow classes read them, and no Keras model is built of them.
_WEIGHTS_ALONE = re.compile(r"(tf_model(-\d+-of-\d+)?|model\.weights)\.h5", re.ASCII)
_HDF5, _NUMPY, _ZIP, _ZIP_END = b"\x89HDF\r\n\x1a\n", b"\x93NUMPY", b"PK\x03\x04", b"PK\x05\x06"
_ZLIB = b"x"  # zlib's first byte, and perhaps a text's


def parse(file: str, sparse: PartialFile) -> Table:
    """Return what a file of torch or of a recognised format declares, else raise CheckpointError.

    The error is UnsafeFileError if loading the file may run code, and UnfollowedError if the file
    may contain code that was not looked at.
    """
    start = sparse.read(Span(0, min(sparse.size, START)))
    row = format_of(file, start)
    table = read_format(file, sparse, row) if row else None
    if row and table and row.is_followed:
        return table
    if predicate := _unfollowed(file, sparse):
        raise UnfollowedError(f"{named(file)} {predicate}", table)
    if file_name(file) == METADATA and start.startswith(b"\x80"):
        return dcp.parse(file, sparse)
    if start.startswith(_NUMPY):
        _follow_objects(file, sparse, start)
    may_be_pickle = file.lower().endswith(PICKLED) or start.startswith(_ZIP) or _may_import(sparse)
    if may_be_pickle and not start.startswith((_HDF5, _NUMPY)):
        try:
            return torch_file.parse(file, sparse)
        except UnsafeFileError:
            raise
        except CheckpointError:
            if table is None:
                raise
    if table:
        return table
    raise CheckpointError(f"{named(file)} runs no code")


def is_tar(sparse: PartialFile) -> bool:
    """Return whether the file is a tar archive."""
    return torch_file.is_tar(sparse.read(Span(0, min(sparse.size, START))))


def _unfollowed(file: str, sparse: PartialFile) -> str | None:
    """Return a predicate for a file that may contain code and is not looked into, else None."""
    start = sparse.read(Span(0, min(sparse.size, START)))
    end = sparse.read(Span(max(0, sparse.size - END), sparse.size))
    is_zip = start.startswith(_ZIP) or end.startswith(_ZIP_END)
    is_of_torch = start.startswith(_ZIP) and b"data.pkl" in start  # its first entry
    is_archive = torch_file.is_tar(start) or (is_zip and not is_of_torch)
    is_read_by_torch = torch_file.is_tar(start) or start.startswith(_ZIP)  # not behind other bytes
    fault = None
    if file.endswith(".distcp"):
        fault = "has parts that are unpickled when they are loaded"
    elif start.startswith(_HDF5) and not _WEIGHTS_ALONE.fullmatch(file_name(file)):
        fault = "is an HDF5 file, in which a Keras model may have code"
    elif _is_compressed(start):
        fault = "is compressed, and was not unpacked"
    elif is_archive and not (file.lower().endswith(PICKLED) and is_read_by_torch):
        fault = "is an archive, and was not looked into"
    return fault


def _follow_objects(file: str, sparse: PartialFile, start: bytes) -> None:
    """Raise UnsafeFileError if a NumPy array has a pickle of objects that may run code.

    Only the header of such an array has one of the signs: keys and types of numbers do not.
    """
    width = 2 if start[6:7] == b"\x01" else 4
    stop = 8 + width + int.from_bytes(start[8 : 8 + width], "little")
    signs = (b"O", b"obj", b"\\")
    if stop <= len(start) and not any(sign in start[8 + width : stop] for sign in signs):
        return
    data = sparse.read(Span(0, min(sparse.size, stop + MAX_PICKLE)))
    pickle = follow_pickle(data, min(stop, len(data)))
    if pickle.outside:
        raise UnsafeFileError(f"{named(file)} is a NumPy array of objects", pickle.outside)
    if pickle.fault and (pickle.fault.may_go_on or len(data) < sparse.size):
        raise not_followed(file, f"is a NumPy array of objects that {pickle.fault.reason}")


def _is_compressed(start: bytes) -> bool:
    if not start.startswith(torch_file.COMPRESSED):
        return False
    try:
        return not start.startswith(_ZLIB) or bool(zlib.decompressobj().decompress(start))
    except zlib.error:
        return False


def _may_import(sparse: PartialFile) -> bool:
    """Return whether an unpickler may import something that exists."""
    opcodes = torch_file.opcodes_at_start(sparse)
    is_marked = sparse.read(Span(0, min(sparse.size, 1))) == b"\x80"
    if not opcodes.names or is_marked or opcodes.is_cut or opcodes.is_standard:
        return bool(opcodes.names)
    if not opcodes.is_credible:
        return False
    pickle = follow_pickle(sparse.read(Span(0, min(sparse.size, MAX_PICKLE))))
    return pickle.is_calling or pickle.fault is None or pickle.fault.may_go_on
