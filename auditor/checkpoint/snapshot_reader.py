"""The reader of snapshot files: JSON with everything an audit reads of a checkpoint. No I/O.

`SnapshotDocument` and the classes above it define the format, "hf-audit-snapshot" version 2: lists
are sorted by name, `deflated` is zlib's format in base64. A vocabulary is reduced to its ids, see
companions/vocabulary.py.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from auditor.bounded.deflated import GZIP, BoundedTotal, gunzip, inflate, require
from auditor.bounded.json_text import MAX_TEXT, Loaded, converted, load_object
from auditor.checkpoint.selecting import name_fault
from auditor.checkpoint.skipped import SkippedEntry
from auditor.checkpoint.snapshot import (
    BaseModel,
    Component,
    PublishedText,
    RepoFile,
    Sha1,
    Size,
    Snapshot,
    Source,
    TextFile,
    WeightHeader,
)
from auditor.companions.companion_files import CompanionFile
from auditor.containers.index import MAX_NAMES
from auditor.containers.weight_formats import FilePart
from auditor.errors import CheckpointError, Reason, UsageError
from auditor.messages import described, named, quoted

FORMAT = "hf-audit-snapshot"
VERSION = 2

_MIB = 1024 * 1024
# Bytes and tensors of the header of one safetensors file. The format allows 100 MB, which have room
# for a million tensors. The largest known model, DeepSeek-V3, would have a header of 11 MB for
# 92,000 tensors if it were one file. An audit of 90,000 expected tensors takes 0.7 seconds and
# 110 MB; of 90,000 unexpected ones, 2 seconds.
MAX_HEADER, MAX_TENSORS = 12 * _MIB, 100_000
# Bytes and tensors of all headers of one model: Kimi K2 Thinking stores 384 experts of 60 layers as
# 3 * 384 * 60 = 69,120 weights of three tensors each, so 207,360 with headers of some 30 MB.
MAX_HEADERS, MAX_ALL_TENSORS = 48 * _MIB, MAX_NAMES
# Bytes of the parts of one torch file or GGUF. They are in memory twice while spans are joined, so
# the bound is half of 64 MiB, less the memory of parsing.
MAX_PARTS = 24 * _MIB
MAX_OTHERS = 48 * _MIB  # bytes of all texts: an index, a config
# Bytes of the file.
MAX_SNAPSHOT = MAX_HEADERS + MAX_OTHERS
# JSON values: three for each of the 100,000 files that a folder may have, five for a header.
MAX_VALUES = 500_000


class _Closed(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """The base of all entries, which refuse unknown keys and write no defaults."""


class BytesEntry(_Closed):
    """A file, stored as text or deflated; or a companion file that was not read."""

    name: str
    text: str | UnsetType = UNSET
    deflated: str | UnsetType = UNSET
    unread: str | UnsetType = UNSET  # why a companion file was not read


class PartEntry(_Closed):
    """A part of a weight file: its bytes from `start` on."""

    start: Size
    deflated: str


class HeaderEntry(_Closed):
    """A weight file: a safetensors header with its length, or the parts of another format."""

    name: str
    size: Size | None
    deflated: str | UnsetType = UNSET
    parts: list[PartEntry] | UnsetType = UNSET


class ComponentEntry(_Closed):
    """A model in a folder of the repository."""

    name: str
    config: BytesEntry | None
    index: BytesEntry | None
    heads: list[HeaderEntry]
    torch_copies: list[HeaderEntry]
    unopened: list[str]
    settings: BytesEntry | None = None


class BaseEntry(_Closed):
    """The base model of an adapter."""

    model: str
    commit: Sha1 | None
    origin: str
    config: BytesEntry | None
    reason: Reason | None
    detail: str


class SnapshotDocument(_Closed):
    """The top level of a snapshot file."""

    format: str
    version: int
    model: str  # the Hub id or the path
    commit: Sha1 | None
    origin: str  # where the files come from
    partial: bool  # the source may be incomplete
    files: list[RepoFile]
    config: BytesEntry | None
    index: BytesEntry | None
    heads: list[HeaderEntry]
    unopened: list[str]  # missing shards
    packing: BytesEntry | None = None
    settings: BytesEntry | None = None
    manifest: BytesEntry | None = None
    torch_copies: list[HeaderEntry] = []
    pickles: list[HeaderEntry] = []
    unexamined: list[str] | None = None
    base: BaseEntry | UnsetType = UNSET
    components: list[ComponentEntry] = []
    companions: list[BytesEntry] | None = None
    published: list[PublishedText] = []
    skipped: list[SkippedEntry] = []
    store_version: Sha1 | None = None


def is_snapshot(content: bytes) -> bool:
    """Return whether a file's bytes look like a snapshot; only `load` checks completely."""
    return content.startswith(GZIP) or f'"{FORMAT}"'.encode() in content


def load(content: bytes, path: str) -> Snapshot:
    """Parse a snapshot that `dump` wrote; raise UsageError for any other content."""
    try:
        return _snapshot(_load_json(gunzip(content, MAX_SNAPSHOT), path))
    except CheckpointError as fault:
        raise _not_a_snapshot(path, fault) from None


def load_own_and_shared(own: bytes, shared: bytes, path: str) -> Snapshot:
    """Parse a snapshot that `dump_own_and_shared` wrote; raise UsageError otherwise."""
    try:
        parts = [_load_json(part, path) for part in (own, shared)]
        document = {**parts[1].value, **parts[0].value}
        return _snapshot(Loaded(document, (*parts[0].repeated, *parts[1].repeated)))
    except CheckpointError as fault:
        raise _not_a_snapshot(path, fault) from None


def _load_json(content: bytes, path: str) -> Loaded:
    return load_object(content, path, size=MAX_SNAPSHOT, values=MAX_VALUES)


def _not_a_snapshot(path: str, fault: Exception) -> UsageError:
    return UsageError(f"{quoted(path)} is not a snapshot that can be read: {fault}")


def _snapshot(loaded: Loaded) -> Snapshot:
    document = loaded.value
    if loaded.repeated:
        raise CheckpointError(f"it contains the key {quoted(loaded.repeated[0])} twice")
    kind, version = document.get("format"), document.get("version")
    if kind != FORMAT or version != VERSION or type(version) is not int:
        raise CheckpointError(
            f"its format is {described(kind)}, version {described(version)}, expected "
            f"{quoted(FORMAT)}, version {VERSION}; make it again with audit snapshot"
        )
    return _Reader().snapshot(converted(document, SnapshotDocument))


class _Reader:
    """A reader of one document's fields, which counts their bytes and tensors."""

    def __init__(self) -> None:
        self._header_bytes = BoundedTotal("its headers have", "bytes", MAX_HEADERS)
        self._tensors = BoundedTotal("its headers have", "tensors", MAX_ALL_TENSORS)
        self._other_bytes = BoundedTotal("its texts and torch copies have", "bytes", MAX_OTHERS)

    def snapshot(self, document: SnapshotDocument) -> Snapshot:
        # Two names that are not UTF-8 in a folder may be equal here.
        _require_sorted("files", [_name(file.name) for file in document.files], unique=False)
        _require_sorted("published", [one.name for one in document.published])
        _require_sorted("skipped", [_name(one.name) for one in document.skipped])
        _require_sorted("components", [one.name for one in document.components])
        companions = None
        if document.companions is not None:
            _require_sorted("companions", [entry.name for entry in document.companions])
            companions = tuple(map(self._companion, document.companions))
        return Snapshot(
            model=document.model,
            commit=document.commit,
            version=document.store_version,
            source=Source.SNAPSHOT,
            origin=document.origin,
            files=tuple(document.files),
            skipped=tuple(document.skipped),
            config=self._text(document.config, "config"),
            index=self._text(document.index, "index"),
            headers=self._heads(document.heads),
            torch_copies=self._torch_files(document.torch_copies, "torch_copies"),
            pickles=tuple(
                replace(head, by_content=True)
                for head in self._torch_files(document.pickles, "pickles")
            ),
            unexamined=None if document.unexamined is None else _names(document.unexamined),
            base=None if document.base is UNSET else self._base(document.base),
            unopened=_names(document.unopened),
            packing=self._text(document.packing, "packing"),
            settings=self._text(document.settings, "settings"),
            manifest=self._text(document.manifest, "manifest"),
            components=tuple(map(self._component, document.components)),
            companions=companions,
            published=tuple(document.published),
            partial=document.partial,
        )

    def _companion(self, entry: BytesEntry) -> CompanionFile:
        if entry.unread is not UNSET:
            return CompanionFile(_name(entry.name), None, entry.unread)
        return CompanionFile(_name(entry.name), self._bytes(entry, "companions"))

    def _component(self, entry: ComponentEntry) -> Component:
        return Component(
            folder=_name(entry.name),
            config=self._text(entry.config, "config"),
            index=self._text(entry.index, "index"),
            headers=self._heads(entry.heads),
            torch_copies=self._torch_files(entry.torch_copies, "torch_copies"),
            unopened=_names(entry.unopened),
            settings=self._text(entry.settings, "settings"),
        )

    def _text(self, entry: BytesEntry | None, key: str) -> TextFile | None:
        if entry is None:
            return None
        return TextFile(name=_name(entry.name), content=self._bytes(entry, key))

    def _base(self, entry: BaseEntry) -> BaseModel:
        return BaseModel(
            model=entry.model,
            commit=entry.commit,
            origin=entry.origin,
            config=self._text(entry.config, "base"),
            reason=entry.reason,
            detail=entry.detail,
        )

    def _bytes(self, entry: BytesEntry, key: str) -> bytes:
        if (entry.text is UNSET) == (entry.deflated is UNSET):
            raise CheckpointError(f"{key}: expected one of the keys text and deflated")
        if entry.text is not UNSET:
            content = entry.text.encode()
            require(f"{key}: it has", len(content), "bytes", MAX_TEXT)
            self._other_bytes.add(len(content))
            return content
        return inflate(str(entry.deflated), key, MAX_TEXT, self._other_bytes)

    def _heads(self, entries: Sequence[HeaderEntry]) -> tuple[WeightHeader, ...]:
        _require_sorted("heads", [entry.name for entry in entries])
        return tuple(map(self._head, entries))

    def _head(self, entry: HeaderEntry) -> WeightHeader:
        header = _weight_file(entry, "heads", self._header_bytes)
        what = f"the header of {named(header.name)} has"
        require(what, header.most_tensors, "tensors", MAX_TENSORS)
        self._tensors.add(header.most_tensors)
        return header

    def _torch_files(self, entries: Sequence[HeaderEntry], key: str) -> tuple[WeightHeader, ...]:
        _require_sorted(key, [entry.name for entry in entries])
        return tuple(_weight_file(entry, key, self._other_bytes) for entry in entries)


def _weight_file(entry: HeaderEntry, key: str, total: BoundedTotal) -> WeightHeader:
    name, size = _name(entry.name), entry.size
    if (entry.parts is UNSET) == (entry.deflated is UNSET):
        raise CheckpointError(f"{key}: expected one of the keys deflated and parts")
    if entry.parts is not UNSET:
        return WeightHeader(name=name, size=size, parts=_parts(entry.parts, total))
    prefix = inflate(str(entry.deflated), key, MAX_HEADER, total)
    return WeightHeader(name=name, size=size, prefix=prefix)


def _parts(entries: Iterable[PartEntry], total: BoundedTotal) -> tuple[FilePart, ...]:
    """Return the parts of a file for a PartialFile: sorted, not empty, with gaps between them."""
    parts: list[FilePart] = []
    for entry in entries:
        part = FilePart(entry.start, inflate(entry.deflated, "parts", MAX_PARTS, total))
        if not part.data or (parts and part.start <= parts[-1].stop):
            raise CheckpointError("parts: one is empty, or begins before the end of another")
        parts.append(part)
    if not parts:
        raise CheckpointError("parts is an empty list, expected bytes of the file")
    return tuple(parts)


def _names(names: Sequence[str]) -> tuple[str, ...]:
    _require_sorted("unopened", names)
    return tuple(map(_name, names))


def _name(name: str) -> str:
    if fault := name_fault(name):
        raise CheckpointError(fault)
    return name


def _require_sorted(key: str, names: Sequence[str], *, unique: bool = True) -> None:
    if any(later < name or (unique and later == name) for name, later in pairwise(names)):
        raise CheckpointError(f"{key}: its names are not sorted, or one is there twice")
