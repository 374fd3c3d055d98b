"""The Snapshot class: the few kilobytes of a checkpoint that an audit reads."""

from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from auditor.analytic.config import Config, config_in
from auditor.bounded.json_text import JsonFile, lfs_pointer_size
from auditor.checkpoint.skipped import SkippedEntry
from auditor.companions.companion_files import CompanionFile
from auditor.containers.index import Index, parse_index
from auditor.containers.manifest import Manifest, parse_manifest
from auditor.containers.safetensors import LENGTH_BYTES, Header, parse_header
from auditor.containers.weight_formats import (
    FilePart,
    NeedsBytes,
    PartialFile,
    Table,
    parser,
    parser_by_content,
)
from auditor.errors import CheckpointError, Reason
from auditor.messages import named
from auditor.observation import Observation

# The types that untrusted JSON must have: bytes of a file, a commit or git blob, and a digest.
Size = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Sha1 = Annotated[str, Meta(pattern="^[0-9a-f]{40}$", max_length=40)]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$", max_length=64)]


_TENSOR = b'"data_offsets"'  # a JSON string cannot contain it unescaped
_CUT = "truncated"  # in the errors of the formats' readers for a file that ends too soon


class Source(StrEnum):
    """The place from which a snapshot's bytes were read."""

    HUB = "hub"
    CACHE = "cache"
    FOLDER = "folder"
    FILE = "file"
    SNAPSHOT = "snapshot"
    BUNDLED = "bundled"
    STORE = "store"


class FileState(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state of a local file, equal while the file is neither replaced nor changed."""

    inode: int
    size: int  # bytes
    modified: int  # nanoseconds
    device: int
    changed: int  # nanoseconds; programs cannot set it, unlike `modified`

    def is_same(self, other: "FileState") -> bool:
        """Return whether the content is the same; a new hard link alters `changed`."""
        return replace(self, changed=other.changed) == other


class RepoFile(
    Observation, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One file of the repository, as its listing describes it."""

    _aside = ("sha256", "blob_id", "state")

    name: str  # path inside the repo, "/" between folders
    size: Size | None  # bytes; None: not in the listing
    # Digests in hex: sha256 for a file in LFS, the git blob id (SHA-1) for others; None if the
    # listing lacks them. Listings are compared without the digests.
    sha256: Sha256 | None = None
    blob_id: Sha1 | None = None
    state: FileState | None = None  # state of a local file when it was listed


class WeightHeader(Observation, frozen=True, kw_only=True, dict=True):
    """The part of one weight file that is read: its header, and none of its data.

    For a safetensors file `prefix` contains the 8-byte length and the header. If the declared
    length is impossible (it passes the file's end or the format's limit), or the file is a Git LFS
    pointer, `prefix` contains only the bytes that show this. For other formats `parts` contains
    the bytes that the parser read.
    """

    _aside = ("known", "state")

    name: str
    size: int | None  # of the complete file, in bytes
    prefix: bytes = b""
    parts: tuple[FilePart, ...] = ()  # sorted, with gaps; () for safetensors
    # The value of `parsed`, if the reader has computed it: parsing a torch file twice takes long.
    known: Header | Table | CheckpointError | None = None
    by_content: bool = False  # whether the file is parsed by its first bytes, not by its name
    state: FileState | None = None  # state of a local file when its header was read

    @property
    def length(self) -> int:
        """The number of bytes that are kept."""
        return len(self.prefix) + sum(len(part.data) for part in self.parts)

    @property
    def most_tensors(self) -> int:
        """An upper bound of the tensors in a safetensors header."""
        return self.prefix.count(_TENSOR)

    @property
    def pointed(self) -> int | None:
        """The file size in a Git LFS pointer; None if this is not a pointer."""
        begins = self.parts and self.parts[0].start == 0
        return lfs_pointer_size(self.parts[0].data if begins else self.prefix)

    @property
    def framework(self) -> str | None:
        """The framework that wrote a safetensors file: pt, tf, flax, np, mlx; None if unstated."""
        return dict(self.parsed.metadata).get("format") if isinstance(self.parsed, Header) else None

    @property
    def cut_off(self) -> str:
        """A predicate, `ends after 8 of 90 bytes`, for a file that is cut; "" for others."""
        table, size, fault = self.parsed, self.size, ""
        if size is None or self.pointed is not None:
            return ""
        match table:
            case _ if size == 0:
                fault = "is empty"
            case Header():
                complete = LENGTH_BYTES + table.header_length + table.data_length
                fault = f"ends after {size:,} of {complete:,} bytes" if size < complete else ""
            case Table():
                fault = "ends too soon" if any(_CUT in one for one in table.size_faults) else ""
            case CheckpointError() if _CUT in str(table) and parser(self.name) is not None:
                fault = f"ends too soon, after {size:,} bytes"
            case CheckpointError() if _CUT in str(table) and size < LENGTH_BYTES:
                fault = f"ends after {size:,} bytes, before its header"
            case CheckpointError() if _CUT in str(table):
                length = int.from_bytes(self.prefix[:LENGTH_BYTES], "little")
                fault = f"ends after {size:,} bytes, within its header of {length:,}"
        return fault

    @cached_property
    def parsed(self) -> Header | Table | CheckpointError:
        """The parsed header, or the error in it; it is parsed once, on first use."""
        if self.known is not None:
            return self.known
        try:
            parse = parser_by_content() if self.by_content else parser(self.name)
            if parse is None:
                return parse_header(self.name, self.prefix)
            return parse(self.name, PartialFile(self.size or 0, self.parts))
        except CheckpointError as error:
            return error.with_traceback(None)  # its frames hold all that was read
        except NeedsBytes as lacking:
            return CheckpointError(
                f"{named(self.name)} has a header too long or in too many parts to be read: "
                f"{lacking}, after {self.length:,} of them were read"
            )


class TextFile(JsonFile, frozen=True, kw_only=True):
    """A config, an index or a manifest, byte for byte; each of its readings is made once."""

    _aside = ("known",)

    name: str
    content: bytes
    known: Index | None = None  # the index from which the content was made, if there was one

    @cached_property
    def as_index(self) -> Index:
        """The content as an index; raise CheckpointError if it cannot be read."""
        return self.known or parse_index(self.name, self.content)

    @cached_property
    def as_config(self) -> Config:
        """The content as a config; raise CheckpointError if it is not a JSON object."""
        return config_in(self)

    @cached_property
    def as_manifest(self) -> Manifest:
        """The content as a manifest; raise CheckpointError if it cannot be read."""
        return parse_manifest(self.name, self.content)


class PublishedText(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A parameter count that the listing states, as written."""

    name: str  # the key: "safetensors.total", "cardData.parameters"
    text: str


class ModelCard(Struct, frozen=True, kw_only=True):
    """The values of a model card's front matter, as written; nothing that an audit examines."""

    licenses: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    base_models: tuple[str, ...] = ()


class BaseModel(Struct, frozen=True, kw_only=True):
    """The base model of an adapter: its config, or why the config is not available."""

    model: str  # the Hub id after renames, or the name in the adapter
    commit: str | None = None
    origin: str = ""
    config: TextFile | None = None
    reason: Reason | None = None  # why there is no config
    detail: str = ""  # a sentence that explains the reason


class Fetched(Struct, frozen=True, kw_only=True):
    """The network traffic of an audit, including redirects and retries."""

    requests: int = 0
    bytes: int = 0  # of response bodies
    seconds: float = 0.0
    redirects: int = 0  # number of requests that are redirects

    def plus(self, other: "Fetched") -> "Fetched":
        """Return the sum of two amounts of traffic."""
        return Fetched(
            requests=self.requests + other.requests,
            bytes=self.bytes + other.bytes,
            seconds=self.seconds + other.seconds,
            redirects=self.redirects + other.redirects,
        )


class Component(Struct, frozen=True, kw_only=True):
    """The files of one model in a repository of several models, under the fields of a Snapshot."""

    folder: str
    config: TextFile | None = None
    index: TextFile | None = None
    headers: tuple[WeightHeader, ...] = ()
    torch_copies: tuple[WeightHeader, ...] = ()
    unopened: tuple[str, ...] = ()
    settings: TextFile | None = None


class Snapshot(Observation, frozen=True, kw_only=True):
    """The file list, texts and headers that an audit reads of a checkpoint at one commit."""

    _aside = ("folder", "card_base", "card", "unexamined")

    model: str  # the Hub id after renames, or the path as the user wrote it
    commit: str | None  # 40 hex digits; None for a folder
    source: Source
    version: str | None = None  # digest of a store's listing, 40 hex digits; None: no store
    origin: str  # one sentence about where these bytes come from
    files: tuple[RepoFile, ...]  # sorted by name; every file of the repo, weights or not
    skipped: tuple[SkippedEntry, ...] = ()  # sorted by name; a folder's entries that are no files
    config: TextFile | None = None
    index: TextFile | None = None
    packing: TextFile | None = None  # declares the packing of the weights: quantize_config.json
    settings: TextFile | None = None  # declares how to load the model: sentence_bert_config.json
    headers: tuple[WeightHeader, ...] = ()  # sorted by name; the weight files that were opened
    torch_copies: tuple[WeightHeader, ...] = ()  # sorted by name; the same weights again
    pickles: tuple[WeightHeader, ...] = ()  # sorted by name; other local files that may run code
    # Local files in which no code was looked for, sorted; None: names decide, as on the Hub.
    unexamined: tuple[str, ...] | None = None
    unopened: tuple[str, ...] = ()  # shards that the index names and the source does not have
    base: BaseModel | None = None  # only for an adapter
    manifest: TextFile | None = None  # declares the components
    components: tuple[Component, ...] = ()  # sorted by folder; models in separate folders
    companions: tuple[CompanionFile, ...] | None = None  # sorted by name; None: not read
    published: tuple[PublishedText, ...] = ()  # sorted by name; only of the default revision
    # The folder of the files on this machine, else None; snapshots are compared without it.
    folder: Path | None = None
    card_base: str | None = None  # the base model that the model card states
    card: ModelCard | None = None  # None: not read; the Hub's listing contains it
    partial: bool = False  # a copy that may be incomplete (a folder, a cache), not the repository
    fetched: Fetched = field(default_factory=Fetched)


def read_index(snapshot: Snapshot) -> Index | None:
    """Return the parsed index; None if there is no readable index."""
    if snapshot.index is None:
        return None
    try:
        return snapshot.index.as_index
    except CheckpointError:
        return None
