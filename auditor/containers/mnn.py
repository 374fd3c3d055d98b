"""The files that config.json of MNN-LLM names."""

from auditor.bounded.json_text import parse_object
from auditor.containers.index import shard_fault
from auditor.containers.weight_formats import NeededFile, PartialFile, Table
from auditor.names.parts import folder_of
from auditor.tensors import Span

_MOST = 1024 * 1024  # bytes
_KEYS = ("llm_model", "llm_weight")


def parse(file: str, sparse: PartialFile) -> Table:
    """Return the graph and its weights, as far as the config names files beside it."""
    config = parse_object(sparse.read(Span(0, min(sparse.size, _MOST))), file)
    names = [name for key in _KEYS if isinstance(name := config.get(key), str)]
    needs = (NeededFile(f"{folder_of(file)}{name}") for name in names if not shard_fault(name))
    return Table(file=file, tensors=(), needs=tuple(needs))
