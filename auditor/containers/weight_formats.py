"""Which parser reads a weight file that is not a safetensors file, and what all parsers return."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct, field

from auditor.containers.partial_file import PartialFile
from auditor.tensors import StoredTensor

# Endings in lower case -> the module of this package whose `parse(file, sparse)` reads such a
# file. Modules are imported when the first such file is met.
MODULES: Mapping[str, str] = MappingProxyType(
    {".bin": "torch_file", ".pt": "torch_file", ".pth": "torch_file", ".ckpt": "torch_file"}
    | {".gguf": "gguf"}
)


class TensorFault(NamedTuple):
    """Tensors that cannot be what the file says of them."""

    names: tuple[str, ...]
    reason: str  # a sentence that begins with the file


class Table(Struct, frozen=True, kw_only=True):
    """What one weight file declares; a format may add fields in a class of its own."""

    file: str  # path inside the repo, "/" between folders
    tensors: tuple[StoredTensor, ...]  # sorted by name
    size_faults: tuple[str, ...] = ()  # why the file cannot have the size it has
    faults: tuple[TensorFault, ...] = ()
    notes: tuple[str, ...] = ()  # what a reader should know of how it was read, one line each
    # A tensor -> the one that is stored as the very same bytes, first in natural order.
    shared: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    imports: tuple[str, ...] = ()  # what loading would import and call beyond its own, a line each
    broken: str | None = None  # why its tensors cannot be known, and yet it has `imports`


# The function `parse` that each module of MODULES has: the path of a file and the bytes at hand.
Parse = Callable[[str, PartialFile], Table]


def parser(file: str) -> Parse | None:
    """The parser of the file, by its ending; None: the file is read as safetensors.

    A parser reads from its PartialFile, passes on NeedsBytes, and raises CheckpointError for a file
    of another format.
    """
    module = MODULES.get(PurePosixPath(file).suffix.lower())
    if module is None:
        return None
    parse: Parse = import_module(f"auditor.containers.{module}").parse
    return parse
