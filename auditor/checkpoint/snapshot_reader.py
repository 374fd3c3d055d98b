"""Snapshot files, read: one small JSON file that holds all an audit reads. Pure."""

import base64
import binascii
import gzip
import io
import re
import zlib
from collections.abc import Sequence
from itertools import pairwise

from auditor.checkpoint.selecting import name_fault
from auditor.checkpoint.snapshot import (
    BaseModel,
    Component,
    RepoFile,
    Snapshot,
    Source,
    TextFile,
    WeightHeader,
)
from auditor.containers.bounded_json import Loaded, load_object
from auditor.containers.partial_file import FilePart
from auditor.errors import CheckpointError, Reason, UsageError
from auditor.messages import described, listed, quoted

FORMAT = "hf-audit-snapshot"
VERSION = 1

# Bytes, unpacked: the most that an audit reads: headers (`headers.MODEL`), an index and a config.
MAX_SNAPSHOT = 96 * 1024 * 1024
MAX_VALUES = 3_000_000  # in its JSON, six for each tensor
# Packed, it is some fourteenth of that (Kimi K2 Thinking's: 50 MB and 3.7); beyond this size, what
# unpacks to a hundred times as much is not a snapshot.
_SURE = 32 * 1024 * 1024
_RATIO = 100

LENGTH = 8  # bytes of the length that a safetensors file begins with
_GZIP = b"\x1f\x8b"
_KEYS = "commit config files format heads index model origin partial unopened version"
# Keys that are there where they say anything: older snapshots are without them.
TORCH_COPIES, BASE, MANIFEST, COMPONENTS = "torch_copies", "base", "manifest", "components"
PACKING, SETTINGS = "packing", "settings"
_OPTIONAL = (TORCH_COPIES, BASE, PACKING, SETTINGS, MANIFEST, COMPONENTS)
_COMPONENT_KEYS = (
    "config heads index name torch_copies unopened",
    "config heads index name settings torch_copies unopened",
)
_BASE_KEYS = "commit config detail model origin reason"
_TEXT_KEYS = ("name text", "base64 name")
_HEAD_KEYS = ("header length name size", "base64 name size", "name parts size")
_PART_KEYS = "base64 start"
_FILE_KEYS = "name size"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_LARGEST = 2**64 - 1


def is_snapshot(content: bytes) -> bool:
    """Whether a file's bytes mean to be a snapshot; `load` says whether they are one."""
    return content.startswith(_GZIP) or f'"{FORMAT}"'.encode() in content


def load(content: bytes, path: str) -> Snapshot:
    """The snapshot that `dump` wrote; raises UsageError, naming the fault, for anything else."""
    try:
        return _snapshot(_loaded(_unpacked(content), path))
    except (CheckpointError, _FaultError) as fault:
        raise _no_snapshot(path, fault) from None


def load_own_and_shared(own: bytes, shared: bytes, path: str) -> Snapshot:
    """The snapshot that `dump_own` and `dump_shared` wrote; raises UsageError for anything else."""
    try:
        parts = [_loaded(part, path) for part in (own, shared)]
        document = {**parts[1].value, **parts[0].value}
        return _snapshot(Loaded(document, (*parts[0].repeated, *parts[1].repeated)))
    except (CheckpointError, _FaultError) as fault:
        raise _no_snapshot(path, fault) from None


def _loaded(content: bytes, path: str) -> Loaded:
    return load_object(content, path, size=MAX_SNAPSHOT, values=MAX_VALUES)


def _no_snapshot(path: str, fault: Exception) -> UsageError:
    return UsageError(f"{quoted(path)} is not a snapshot that can be read: {fault}")


class _FaultError(Exception):
    """What is wrong with a snapshot file, in words."""


def _unpacked(content: bytes) -> bytes:
    if not content.startswith(_GZIP):
        return content
    most = min(MAX_SNAPSHOT, max(_SURE, _RATIO * len(content)))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            unpacked = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise _FaultError(f"its gzip is broken ({error})") from None
    if len(unpacked) > most:
        raise _FaultError(f"it unpacks to more than {most:,} bytes")
    return unpacked


def _snapshot(loaded: Loaded) -> Snapshot:
    document = loaded.value
    if loaded.repeated:
        raise _FaultError(f"it holds the key {quoted(loaded.repeated[0])} twice")
    kind, version = document.get("format"), document.get("version")
    if kind != FORMAT or version != VERSION or type(version) is not int:
        given = f"{described(kind)}, version {described(version)}"
        raise _FaultError(f"its format is {given}; {quoted(FORMAT)}, version {VERSION} is read")
    optional = [key for key in _OPTIONAL if key in document]
    _object(document, "it", " ".join(sorted((*_KEYS.split(), *optional))))
    return Snapshot(
        model=_string(document["model"], "model"),
        commit=_commit(document["commit"]),
        source=Source.SNAPSHOT,
        origin=_string(document["origin"], "origin"),
        files=tuple(_file(entry) for entry in _list(document["files"], "files")),
        config=_text_file(document["config"], "config"),
        index=_text_file(document["index"], "index"),
        headers=_heads(document["heads"]),
        torch_copies=_heads(document.get(TORCH_COPIES, [])),
        base=_base(document[BASE]) if BASE in document else None,
        unopened=_names(document["unopened"]),
        packing=_text_file(document.get(PACKING), PACKING),
        settings=_text_file(document.get(SETTINGS), SETTINGS),
        manifest=_text_file(document.get(MANIFEST), MANIFEST),
        components=tuple(map(_loaded_component, _list(document.get(COMPONENTS, []), COMPONENTS))),
        partial=_flag(document["partial"], "partial"),
    )


def _file(entry: object) -> RepoFile:
    fields = _object(entry, "files", _FILE_KEYS)
    return RepoFile(name=_name(fields["name"]), size=_size(fields["size"]))


def _loaded_component(entry: object) -> Component:
    fields = _object(entry, COMPONENTS, *_COMPONENT_KEYS)
    return Component(
        folder=_name(fields["name"]),
        config=_text_file(fields["config"], "config"),
        index=_text_file(fields["index"], "index"),
        headers=_heads(fields["heads"]),
        torch_copies=_heads(fields["torch_copies"]),
        unopened=_names(fields["unopened"]),
        settings=_text_file(fields.get(SETTINGS), SETTINGS),
    )


def _heads(entries: object) -> tuple[WeightHeader, ...]:
    return tuple(_file_head(entry) for entry in _list(entries, "heads"))


def _names(entries: object) -> tuple[str, ...]:
    return tuple(_name(entry) for entry in _list(entries, "unopened"))


def _text_file(entry: object, what: str) -> TextFile | None:
    if entry is None:
        return None
    fields = _object(entry, what, *_TEXT_KEYS)
    name = _name(fields["name"])
    if "text" in fields:
        return TextFile(name=name, content=_string(fields["text"], what).encode())
    return TextFile(name=name, content=_decoded(fields["base64"], what))


def _base(entry: object) -> BaseModel:
    fields = _object(entry, BASE, _BASE_KEYS)
    reason = fields["reason"]
    if reason is not None and reason not in tuple(Reason):
        raise _FaultError(f"{BASE}: expected a reason, found {described(reason)}")
    return BaseModel(
        model=_string(fields["model"], BASE),
        commit=_commit(fields["commit"]),
        origin=_string(fields["origin"], BASE),
        config=_text_file(fields["config"], BASE),
        reason=None if reason is None else Reason(str(reason)),
        detail=_string(fields["detail"], BASE),
    )


def _file_head(entry: object) -> WeightHeader:
    fields = _object(entry, "heads", *_HEAD_KEYS)
    name, size = _name(fields["name"]), _size(fields["size"])
    if "base64" in fields:
        return WeightHeader(name=name, size=size, prefix=_decoded(fields["base64"], "heads"))
    if "parts" in fields:
        return WeightHeader(name=name, size=size, parts=_parts(fields["parts"]))
    length = _number(fields["length"], "length").to_bytes(LENGTH, "little")
    return WeightHeader(
        name=name, size=size, prefix=length + _string(fields["header"], "heads").encode()
    )


def _parts(entries: object) -> tuple[FilePart, ...]:
    """Parts of a file as Sparse has them: in order, none empty, none touching another."""
    found: list[FilePart] = []
    for entry in _list(entries, "parts"):
        fields = _object(entry, "parts", _PART_KEYS)
        part = FilePart(_number(fields["start"], "start"), _decoded(fields["base64"], "parts"))
        if not part.data or (found and part.start <= found[-1].stop):
            raise _FaultError("parts: one is empty, or begins where another has not ended")
        found.append(part)
    if not found:
        raise _FaultError("parts: expected bytes of the file, found an empty list")
    return tuple(found)


def _object(entry: object, what: str, *shapes: str) -> dict[str, object]:
    """An object with exactly the keys of one of the shapes."""
    if not isinstance(entry, dict):
        raise _FaultError(f"{what}: expected an object, found {described(entry)}")
    if " ".join(sorted(entry)) not in shapes:
        keys = " or ".join(f"({shape})" for shape in shapes)
        raise _FaultError(f"{what}: expected the keys {keys}, found {listed(sorted(entry))}")
    return entry


def _list(entry: object, what: str) -> Sequence[object]:
    """A list whose entries are in the order of their names, none twice."""
    if not isinstance(entry, list):
        raise _FaultError(f"{what}: expected a list, found {described(entry)}")
    names = [one.get("name") if isinstance(one, dict) else one for one in entry]
    texts = [name for name in names if isinstance(name, str)]
    if any(later <= name for name, later in pairwise(texts)):
        raise _FaultError(f"{what}: its names are not sorted, or one is there twice")
    return entry


def _string(entry: object, what: str) -> str:
    if not isinstance(entry, str):
        raise _FaultError(f"{what}: expected a string, found {described(entry)}")
    return entry


def _flag(entry: object, what: str) -> bool:
    if not isinstance(entry, bool):
        raise _FaultError(f"{what}: expected true or false, found {described(entry)}")
    return entry


def _name(entry: object) -> str:
    name = _string(entry, "name")
    if fault := name_fault(name):
        raise _FaultError(fault)
    return name


def _number(entry: object, what: str) -> int:
    if type(entry) is not int or not 0 <= entry <= _LARGEST:
        found = described(entry)
        raise _FaultError(f"{what}: expected a whole number below 2**64, found {found}")
    return entry


def _size(entry: object) -> int | None:
    return None if entry is None else _number(entry, "size")


def _commit(entry: object) -> str | None:
    if entry is None:
        return None
    if not isinstance(entry, str) or not _COMMIT.fullmatch(entry):
        raise _FaultError(f"commit: expected 40 hex digits, found {described(entry)}")
    return entry


def _decoded(entry: object, what: str) -> bytes:
    try:
        return base64.b64decode(_string(entry, what), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _FaultError(f"{what}: its base64 is broken ({error})") from None
