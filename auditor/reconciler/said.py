"""Who says what a checkpoint should hold: config.json; of GGUF files their own metadata."""

from auditor.analytic import read_config
from auditor.downloader.snapshot import Snapshot
from auditor.reconciler.spoken import Said


def is_gguf(snapshot: Snapshot) -> bool:
    """Whether the weight files that were opened are GGUF files."""
    return any(head.name.lower().endswith(".gguf") for head in snapshot.heads)


def where(snapshot: Snapshot) -> str:
    """The file that says it, or should."""
    if snapshot.config is not None and not is_gguf(snapshot):
        return snapshot.config.name
    return min((head.name for head in snapshot.heads), default="config.json")


def said(snapshot: Snapshot) -> Said | None:
    """None: no file says it, or none that can be read.

    Raises CheckpointError for a config that is none, SourceError for an architecture that is not
    known.
    """
    if is_gguf(snapshot):
        from auditor.reconciler import from_gguf  # noqa: PLC0415 - most audits have none

        return from_gguf.said(snapshot)
    if snapshot.config is None:
        return None
    return Said(read_config(snapshot.config.name, snapshot.config.content))
