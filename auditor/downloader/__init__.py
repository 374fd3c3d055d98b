"""Config, index and headers of a checkpoint, from the Hub, this machine or a snapshot file: I/O.

Each source is a module with a function `read`, which returns the Snapshot of a model or raises
SourceError: hub, huggingface_cache, local_folder, bundled. `fetch` chooses one.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from auditor.downloader.fetching import fetch

__all__ = ["fetch"]


def __getattr__(name: str) -> Any:
    """The sources take 12 ms to import, and what a model type implies is asked of none."""
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from auditor.downloader.fetching import fetch  # noqa: PLC0415 - see above

    return fetch
