"""Snapshot: the few kilobytes of a checkpoint that an audit reads, wherever they came from."""

from enum import StrEnum
from functools import cached_property
from pathlib import Path

from msgspec import Struct, field

from auditor.companions.companion_files import CompanionFile
from auditor.containers.bounded_json import lfs_pointer_size
from auditor.containers.index import Index, parse_index
from auditor.containers.safetensors import Header, parse_header
from auditor.containers.weight_formats import FilePart, NeedsBytes, PartialFile, Table, parser
from auditor.errors import CheckpointError, Reason
from auditor.messages import named
from auditor.observation import Observation


class Source(StrEnum):
    """Where a snapshot's bytes were read."""

    HUB = "hub"
    CACHE = "cache"
    FOLDER = "folder"
    FILE = "file"
    SNAPSHOT = "snapshot"
    BUNDLED = "bundled"


class RepoFile(Observation, frozen=True, kw_only=True):
    """One file of the repository, as its listing shows it."""

    _aside = ("sha256", "blob_id")

    name: str  # path inside the repo, "/" between folders
    size: int | None  # bytes; None: the listing does not say
    # What its bytes come to, in hex: of a file in LFS sha256, of another its git blob id (SHA-1).
    # None: the listing does not say. Two listings of the same files are the same without them.
    sha256: str | None = None
    blob_id: str | None = None


class WeightHeader(Observation, frozen=True, kw_only=True, dict=True):
    """What is read of one weight file: its header, and nothing of the data.

    Of a safetensors file `prefix` has the 8-byte length and the header. Where the declared length
    cannot be true (it passes the file's end or the format's limit), or the file is a Git LFS
    pointer, it holds only what shows it. Of another format `parts` has what its parser read.
    """

    _aside = ("known",)

    name: str
    size: int | None  # of the whole file, in bytes
    prefix: bytes = b""
    parts: tuple[FilePart, ...] = ()  # sorted, none touching another; no safetensors file has any
    # What `parsed` is, where the reader had to find it out; a torch file takes long to parse twice.
    known: Header | Table | CheckpointError | None = None

    @property
    def length(self) -> int:
        """Bytes that are kept."""
        return len(self.prefix) + sum(len(part.data) for part in self.parts)

    @property
    def pointed(self) -> int | None:
        """The size of the file that this Git LFS pointer stands for; None: it is not a pointer."""
        begins = self.parts and self.parts[0].start == 0
        return lfs_pointer_size(self.parts[0].data if begins else self.prefix)

    @cached_property
    def parsed(self) -> Header | Table | CheckpointError:
        """The header, or what is wrong with it; the work is done once, where it is first asked."""
        if self.known is not None:
            return self.known
        try:
            parse = parser(self.name)
            if parse is None:
                return parse_header(self.name, self.prefix)
            return parse(self.name, PartialFile(self.size or 0, self.parts))
        except CheckpointError as error:
            return error
        except NeedsBytes as lacking:
            return CheckpointError(
                f"{named(self.name)} has a header that is too long or too scattered to be read: "
                f"{lacking}, after {self.length:,} of them were read"
            )


class TextFile(Observation, frozen=True, kw_only=True, dict=True):
    """A config or an index, byte for byte."""

    _aside = ("known",)

    name: str
    content: bytes
    known: Index | None = None  # what `as_index` is, where the content was made of it

    @cached_property
    def as_index(self) -> Index:
        """The content, parsed as an index when somebody first asks for it, and then kept.

        Raises CheckpointError if the content is not an index.
        """
        return self.known or parse_index(self.name, self.content)


class PublishedText(Struct, frozen=True, kw_only=True):
    """What the listing says of the number of parameters, as it was written."""

    name: str  # the key: "safetensors.total", "cardData.parameters"
    text: str


class BaseModel(Struct, frozen=True, kw_only=True):
    """The model that an adapter is for: its config, or why that is not to be had."""

    model: str  # the Hub id after renames, or as the adapter names it
    commit: str | None = None
    origin: str = ""
    config: TextFile | None = None
    reason: Reason | None = None  # where there is no config
    detail: str = ""  # likewise


class Fetched(Struct, frozen=True, kw_only=True):
    """What an audit truly asked of the network: redirects and retries are counted."""

    requests: int = 0
    bytes: int = 0  # of response bodies
    seconds: float = 0.0
    redirects: int = 0  # among the requests

    def plus(self, other: "Fetched") -> "Fetched":
        """Both, one after the other."""
        return Fetched(
            requests=self.requests + other.requests,
            bytes=self.bytes + other.bytes,
            seconds=self.seconds + other.seconds,
            redirects=self.redirects + other.redirects,
        )


class Component(Struct, frozen=True, kw_only=True):
    """What is read of one of several models in a repository; as in a Snapshot."""

    folder: str
    config: TextFile | None = None
    index: TextFile | None = None
    headers: tuple[WeightHeader, ...] = ()
    torch_copies: tuple[WeightHeader, ...] = ()
    unopened: tuple[str, ...] = ()
    settings: TextFile | None = None


class Snapshot(Observation, frozen=True, kw_only=True):
    """Config, index and headers of one checkpoint at one commit."""

    _aside = ("folder", "card_base")

    model: str  # the Hub id after renames, or the path as the user wrote it
    commit: str | None  # 40 hex digits; None: a folder has none
    source: Source
    origin: str  # one sentence: how these bytes came to be here
    files: tuple[RepoFile, ...]  # sorted by name; every file of the repo, weights or not
    config: TextFile | None = None
    index: TextFile | None = None
    packing: TextFile | None = None  # says how the weights are packed: quantize_config.json
    settings: TextFile | None = None  # says how it is loaded: sentence_bert_config.json
    headers: tuple[WeightHeader, ...] = ()  # sorted by name; the weight files that were opened
    torch_copies: tuple[WeightHeader, ...] = ()  # sorted by name; the same weights again
    pickles: tuple[WeightHeader, ...] = ()  # sorted by name; other local files that may run code
    unopened: tuple[str, ...] = ()  # shards that the index names and the source does not have
    base: BaseModel | None = None  # of an adapter
    manifest: TextFile | None = None  # says which components there are, or should be
    components: tuple[Component, ...] = ()  # sorted by folder; models in folders of their own
    companions: tuple[CompanionFile, ...] | None = None  # sorted by name; None: not asked for
    published: tuple[PublishedText, ...] = ()  # sorted by name; of the default revision alone
    # Where the files lie on this machine; None: they do not. It is no part of what was found.
    folder: Path | None = None
    card_base: str | None = None  # that its card names
    partial: bool = False  # a copy that need not be whole (a folder, a cache), not the repo itself
    fetched: Fetched = field(default_factory=Fetched)
