"""The files that MNN-LLM's export writes together, by their usual names."""

from auditor.containers.weight_formats import NeededFile, PartialFile, Table
from auditor.names.parts import folder_of

_WEIGHT = ".weight"


def parse(file: str, _sparse: PartialFile) -> Table:
    """Return the graph that a file of weights belongs to, and both for llm_config.json."""
    if file.lower().endswith(_WEIGHT):
        return Table(file=file, tensors=(), needs=(NeededFile(file[: -len(_WEIGHT)]),))
    names = ("llm.mnn", "llm.mnn.weight") if file.lower().endswith(".json") else ()
    needs = (NeededFile(f"{folder_of(file)}{name}") for name in names)
    return Table(file=file, tensors=(), needs=tuple(needs))
