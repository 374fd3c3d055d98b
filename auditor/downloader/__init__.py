"""Config, index and headers of a checkpoint, from the Hub, this machine or a snapshot file."""

from auditor.downloader.fetching import fetch
from auditor.downloader.select import beside, describing
from auditor.downloader.snapshot import (
    Fetched,
    FileHead,
    RepoFile,
    Snapshot,
    Source,
    TextFile,
)
from auditor.downloader.stored import load
from auditor.downloader.storing import dump

__all__ = [
    "Fetched",
    "FileHead",
    "RepoFile",
    "Snapshot",
    "Source",
    "TextFile",
    "beside",
    "describing",
    "dump",
    "fetch",
    "load",
]
