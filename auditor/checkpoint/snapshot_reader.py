"""The reader of snapshot files: JSON with all that an audit reads of a checkpoint. Pure.

Keys are sorted, and lists are sorted by name:

    format, version     "hf-audit-snapshot", 2
    model, commit       the Hub id or the path; 40 hex digits or null
    origin, partial     where the files come from; whether the source may be incomplete
    files               {name, size} of every listed file
    config, index       null, or {name, text}, or {name, deflated}
    heads               {name, size, deflated}: the length and the header of a safetensors file;
                        {name, size, parts}: of another format {start, deflated} for each part
    unopened            the names of missing shards

These keys are optional: packing, settings, manifest (as config), torch_copies and pickles (as
heads), base (of an adapter), components (the models in folders), companions (as config, or
{name, unread} for a file that could not be read; a vocabulary is reduced to its ids, see
companions/vocabulary.py), published ({name, text}: the size that the listing states).
`deflated` is zlib's format in base64 (snapshot_fields.py).
"""

from auditor.checkpoint.snapshot import (
    BaseModel,
    Component,
    PublishedText,
    RepoFile,
    Snapshot,
    Source,
    TextFile,
    WeightHeader,
)
from auditor.checkpoint.snapshot_fields import (
    GZIP,
    MAX_ALL_TENSORS,
    MAX_HEADER,
    MAX_HEADERS,
    MAX_OTHERS,
    MAX_PARTS,
    MAX_TENSORS,
    MAX_TEXT,
    BoundedTotal,
    SnapshotFaultError,
    flag_of,
    hex_digits_of,
    list_of,
    name_of,
    number_of,
    object_of,
    plain,
    require,
    size_of,
    string_of,
    tensors_in,
    unpacked,
    unzipped,
)
from auditor.companions.companion_files import CompanionFile
from auditor.containers.bounded_json import Loaded, load_object
from auditor.containers.weight_formats import FilePart
from auditor.errors import CheckpointError, Reason, UsageError
from auditor.messages import described, named, quoted

FORMAT = "hf-audit-snapshot"
VERSION = 2

# Bytes of the file.
MAX_SNAPSHOT = MAX_HEADERS + MAX_OTHERS
# JSON values: three for each of the 100,000 files that a folder may have, five for a header.
MAX_VALUES = 500_000

_KEYS = "commit config files format heads index model origin partial unopened version"
# Optional keys.
TORCH_COPIES, BASE, MANIFEST, COMPONENTS = "torch_copies", "base", "manifest", "components"
PACKING, SETTINGS, COMPANIONS = "packing", "settings", "companions"
PUBLISHED, PICKLES = "published", "pickles"
_OPTIONAL = (
    *(TORCH_COPIES, BASE, PACKING, SETTINGS, MANIFEST, COMPONENTS, COMPANIONS),
    *(PUBLISHED, PICKLES),
)
_COMPONENT_KEYS = (
    "config heads index name torch_copies unopened",
    "config heads index name settings torch_copies unopened",
)
_BASE_KEYS = "commit config detail model origin reason"
_TEXT_KEYS = ("name text", "deflated name")
_HEAD_KEYS = ("deflated name size", "name parts size")
_PART_KEYS = "deflated start"
_FILE_KEYS = ("name size", "name sha256 size", "blob_id name size")
_COMPANION_KEYS = (*_TEXT_KEYS, "name unread")


def is_snapshot(content: bytes) -> bool:
    """Whether a file's bytes look like a snapshot; `load` checks whether they are one."""
    return content.startswith(GZIP) or f'"{FORMAT}"'.encode() in content


def load(content: bytes, path: str) -> Snapshot:
    """Read a snapshot that `dump` wrote; raise UsageError with the fault for anything else."""
    try:
        return _snapshot(_loaded(unzipped(content, MAX_SNAPSHOT), path))
    except (CheckpointError, SnapshotFaultError) as fault:
        raise _no_snapshot(path, fault) from None


def load_own_and_shared(own: bytes, shared: bytes, path: str) -> Snapshot:
    """Read a snapshot of `dump_own` and `dump_shared`; raise UsageError for anything else."""
    try:
        parts = [_loaded(part, path) for part in (own, shared)]
        document = {**parts[1].value, **parts[0].value}
        return _snapshot(Loaded(document, (*parts[0].repeated, *parts[1].repeated)))
    except (CheckpointError, SnapshotFaultError) as fault:
        raise _no_snapshot(path, fault) from None


def _loaded(content: bytes, path: str) -> Loaded:
    return load_object(content, path, size=MAX_SNAPSHOT, values=MAX_VALUES)


def _no_snapshot(path: str, fault: Exception) -> UsageError:
    return UsageError(f"{quoted(path)} is not a snapshot that can be read: {fault}")


def _snapshot(loaded: Loaded) -> Snapshot:
    document = loaded.value
    if loaded.repeated:
        raise SnapshotFaultError(f"it contains the key {quoted(loaded.repeated[0])} twice")
    kind, version = document.get("format"), document.get("version")
    if kind != FORMAT or version != VERSION or type(version) is not int:
        observed = f"{described(kind)}, version {described(version)}"
        raise SnapshotFaultError(
            f"its format is {observed}, expected {quoted(FORMAT)}, version {VERSION}; "
            "make it again with audit snapshot"
        )
    optional = [key for key in _OPTIONAL if key in document]
    object_of(document, "it", " ".join(sorted((*_KEYS.split(), *optional))))
    return _Reader().snapshot(document)


class _Reader:
    """Reads the fields of one document and counts their bytes and tensors."""

    def __init__(self) -> None:
        self._headers = BoundedTotal("its headers have", "bytes", MAX_HEADERS)
        self._tensors = BoundedTotal("its headers have", "tensors", MAX_ALL_TENSORS)
        self._others = BoundedTotal("its texts and torch copies have", "bytes", MAX_OTHERS)

    def snapshot(self, document: dict[str, object]) -> Snapshot:
        components = list_of(document.get(COMPONENTS, []), COMPONENTS)
        return Snapshot(
            model=string_of(document["model"], "model"),
            commit=hex_digits_of(document["commit"], "commit", 40),
            source=Source.SNAPSHOT,
            origin=string_of(document["origin"], "origin"),
            files=_files(document["files"]),
            config=self._text(document["config"], "config"),
            index=self._text(document["index"], "index"),
            headers=self._heads(document["heads"]),
            torch_copies=self._torch_files(document.get(TORCH_COPIES, []), TORCH_COPIES),
            pickles=self._torch_files(document[PICKLES], PICKLES) if PICKLES in document else (),
            base=self._base(document[BASE]) if BASE in document else None,
            unopened=_names(document["unopened"]),
            packing=self._text(document.get(PACKING), PACKING),
            settings=self._text(document.get(SETTINGS), SETTINGS),
            manifest=self._text(document.get(MANIFEST), MANIFEST),
            components=tuple(map(self._component, components)),
            companions=self._companions(document.get(COMPANIONS)),
            published=_published(document.get(PUBLISHED, [])),
            partial=flag_of(document["partial"], "partial"),
        )

    def _companions(self, entries: object) -> tuple[CompanionFile, ...] | None:
        if entries is None:
            return None
        return tuple(map(self._companion, list_of(entries, COMPANIONS)))

    def _companion(self, entry: object) -> CompanionFile:
        fields = object_of(entry, COMPANIONS, *_COMPANION_KEYS)
        name = name_of(fields["name"])
        if "unread" in fields:
            return CompanionFile(name, None, string_of(fields["unread"], COMPANIONS))
        return CompanionFile(name, _bytes(fields, COMPANIONS, MAX_TEXT, self._others))

    def _component(self, entry: object) -> Component:
        fields = object_of(entry, COMPONENTS, *_COMPONENT_KEYS)
        return Component(
            folder=name_of(fields["name"]),
            config=self._text(fields["config"], "config"),
            index=self._text(fields["index"], "index"),
            headers=self._heads(fields["heads"]),
            torch_copies=self._torch_files(fields[TORCH_COPIES], TORCH_COPIES),
            unopened=_names(fields["unopened"]),
            settings=self._text(fields.get(SETTINGS), SETTINGS),
        )

    def _text(self, entry: object, what: str) -> TextFile | None:
        if entry is None:
            return None
        fields = object_of(entry, what, *_TEXT_KEYS)
        return TextFile(
            name=name_of(fields["name"]), content=_bytes(fields, what, MAX_TEXT, self._others)
        )

    def _base(self, entry: object) -> BaseModel:
        fields = object_of(entry, BASE, _BASE_KEYS)
        reason = fields["reason"]
        if reason is not None and reason not in tuple(Reason):
            raise SnapshotFaultError(f"{BASE}: expected a reason, found {described(reason)}")
        return BaseModel(
            model=string_of(fields["model"], BASE),
            commit=hex_digits_of(fields["commit"], "commit", 40),
            origin=string_of(fields["origin"], BASE),
            config=self._text(fields["config"], BASE),
            reason=None if reason is None else Reason(str(reason)),
            detail=string_of(fields["detail"], BASE),
        )

    def _heads(self, entries: object) -> tuple[WeightHeader, ...]:
        return tuple(map(self._head, list_of(entries, "heads")))

    def _head(self, entry: object) -> WeightHeader:
        header = _weight_file(entry, "heads", self._headers)
        tensors = tensors_in(header.prefix)
        require(f"the header of {named(header.name)} has", tensors, "tensors", MAX_TENSORS)
        self._tensors.add(tensors)
        return header

    def _torch_files(self, entries: object, what: str) -> tuple[WeightHeader, ...]:
        files = list_of(entries, what)
        return tuple(_weight_file(entry, what, self._others) for entry in files)


def _weight_file(entry: object, what: str, total: BoundedTotal) -> WeightHeader:
    fields = object_of(entry, what, *_HEAD_KEYS)
    name, size = name_of(fields["name"]), size_of(fields["size"])
    if "parts" in fields:
        return WeightHeader(name=name, size=size, parts=_parts(fields["parts"], total))
    return WeightHeader(name=name, size=size, prefix=_bytes(fields, what, MAX_HEADER, total))


def _parts(entries: object, total: BoundedTotal) -> tuple[FilePart, ...]:
    """The parts of a file for a PartialFile: sorted, not empty, with gaps between them."""
    parts: list[FilePart] = []
    for entry in list_of(entries, "parts"):
        fields = object_of(entry, "parts", _PART_KEYS)
        start = number_of(fields["start"], "start")
        part = FilePart(start, _bytes(fields, "parts", MAX_PARTS, total))
        if not part.data or (parts and part.start <= parts[-1].stop):
            raise SnapshotFaultError("parts: one is empty, or begins where another has not ended")
        parts.append(part)
    if not parts:
        raise SnapshotFaultError("parts: expected bytes of the file, found an empty list")
    return tuple(parts)


def _bytes(fields: dict[str, object], what: str, most: int, total: BoundedTotal) -> bytes:
    """The bytes of an entry, which contains them as text or deflated."""
    if "text" in fields:
        return plain(string_of(fields["text"], what).encode(), what, most, total)
    return unpacked(string_of(fields["deflated"], what), what, most, total)


def _files(entries: object) -> tuple[RepoFile, ...]:
    """The listed files; two names that are not UTF-8 in a folder may be equal here."""
    return tuple(map(_file, list_of(entries, "files", twice=True)))


def _file(entry: object) -> RepoFile:
    fields = object_of(entry, "files", *_FILE_KEYS)
    return RepoFile(
        name=name_of(fields["name"]),
        size=size_of(fields["size"]),
        sha256=hex_digits_of(fields.get("sha256"), "sha256", 64),
        blob_id=hex_digits_of(fields.get("blob_id"), "blob_id", 40),
    )


def _published(entries: object) -> tuple[PublishedText, ...]:
    objects = (object_of(entry, PUBLISHED, "name text") for entry in list_of(entries, PUBLISHED))
    return tuple(
        PublishedText(
            name=string_of(one["name"], PUBLISHED), text=string_of(one["text"], PUBLISHED)
        )
        for one in objects
    )


def _names(entries: object) -> tuple[str, ...]:
    return tuple(map(name_of, list_of(entries, "unopened")))
