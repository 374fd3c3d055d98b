"""The reader of TensorRT-LLM's config.json, which declares the number of ranks."""

from auditor.bounded.json_text import parse_object
from auditor.containers.weight_formats import NeededFile, PartialFile, Table
from auditor.errors import CheckpointError
from auditor.names.parts import folder_of
from auditor.tensors import Span

_MOST = 1024 * 1024  # bytes
_MOST_RANKS = 100_000


def parse(file: str, sparse: PartialFile) -> Table | None:
    """Return the file of each rank, of an engine or of a checkpoint; None for another config."""
    if sparse.size > _MOST:
        return None
    try:
        config = parse_object(sparse.read(Span(0, sparse.size)), file)
    except CheckpointError:
        return None  # another rule reports the fault
    is_engine = "build_config" in config and "pretrained_config" in config
    match config["pretrained_config"] if is_engine else config:
        case {"architecture": str(), "mapping": {"world_size": int(ranks)}} if ranks > 0:
            if ranks > _MOST_RANKS:
                raise CheckpointError(f"it declares {ranks:,} ranks")
            stem, ending = f"{folder_of(file)}rank", "engine" if is_engine else "safetensors"
            files = (NeededFile(f"{stem}{rank}.{ending}") for rank in range(ranks))
            return Table(file=file, tensors=(), needs=tuple(files))
        case _:
            return None
