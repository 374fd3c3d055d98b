"""Config, index and headers of a checkpoint, from the Hub, this machine or a snapshot file: I/O."""

from auditor.downloader.fetching import fetch

__all__ = ["fetch"]
