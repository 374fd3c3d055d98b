"""Weights under names that not every loader looks for: which loaders read them, if any."""

from collections.abc import Iterator

from auditor.checkpoint.filenames import based_weights, named_weights
from auditor.checkpoint.selecting import PIECES
from auditor.checkpoint.snapshot import Snapshot
from auditor.layouts.packing import Declared
from auditor.messages import listed, named
from auditor.reconciler.findings import BadIndex

_SAFE = ".safetensors"
_INDEX = "model.safetensors.index.json"
_OWN = frozenset({"mlx", "metal"})  # layouts of whose loader the files need no index


def pipeline_file(snapshot: Snapshot) -> str | None:
    """The file that diffusers loads into a pipeline, and that no config describes; None: none."""
    if snapshot.config is not None:
        return None
    return next((head.name for head in snapshot.headers if head.name in PIECES), None)


def name_notes(snapshot: Snapshot) -> Iterator[str]:
    """Who says that a file of no usual name is the model's."""
    names = {file.name for file in snapshot.files}
    config = snapshot.config
    chosen = {head.name for head in snapshot.headers}
    chosen |= {snapshot.index.name} if snapshot.index else set()
    found = named_weights(config, names)
    if config and found and (name := found.weights or found.index) in chosen:
        yield f"{config.name} names {named(name or '')} in transformers_weights"
        return
    for text in (snapshot.packing, config):
        found = based_weights(text, names) if text else None
        name = (found.weights or found.index) if found else None
        if text and name in chosen and not name.startswith(("model.", "pytorch_model.")):
            yield f"{named(name)} has the base name that {text.name} gives: AutoGPTQ loads it"
            return


def unindexed_files(snapshot: Snapshot, declared: Declared | None) -> Iterator[BadIndex]:
    """Several files that no index names, which transformers cannot find; mlx_lm reads them all."""
    files = [head.name for head in snapshot.headers]
    own = declared is not None and declared.method in _OWN
    safe = len(files) > 1 and all(name.endswith(_SAFE) for name in files)
    if snapshot.index is None and safe and not own:
        reason = (
            f"no index names {listed(files)}: mlx_lm reads them, and transformers looks for "
            f"model.safetensors or {_INDEX}"
        )
        yield BadIndex(file=_INDEX, reason=reason)
