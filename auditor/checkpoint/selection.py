"""FileSelection: which files of one listing an audit reads. A value, made by `select`."""

from collections.abc import Callable, Collection
from typing import NamedTuple

from msgspec import Struct

from auditor.errors import SourceError

CONFIG = "config.json"


class FileSelection(Struct, frozen=True, kw_only=True):
    """The files of one listing that an audit reads; never both `weights` and `index`."""

    config: str | None
    weights: str | None = None  # the one weight file
    index: str | None = None
    packing: str | None = None  # says how the weights are packed, where the config may not
    settings: str | None = None  # says how sentence-transformers loads it
    shards: tuple[str, ...] = ()  # of one model, named by no index, sorted: GGUF files
    # Of no usual name, and perhaps of one that these files give, which are read first: config.json,
    # quantize_config.json. Where they give none, `otherwise` holds: what else is read, or why not.
    hints: tuple[str, ...] = ()
    otherwise: "FileSelection | SourceError | None" = None
    torch_copies: tuple[str, ...] = ()  # files that hold the same weights in another format, sorted
    manifest: str | None = None  # says which of the parts are read; None: all of them
    parts: tuple["SelectedComponent", ...] = ()  # models in folders of their own, sorted by folder
    # Files beside the weights, the most telling first; None: they were not asked for.
    companions: tuple[str, ...] | None = None


class SelectedComponent(NamedTuple):
    """One model of several in a repository."""

    folder: str
    selection: FileSelection  # of names in that folder


Chooser = Callable[[Collection[str], str], FileSelection]  # of the names, and where they are
