"""The writer of snapshot files, which snapshot_reader.py reads. Pure and deterministic."""

import gzip
import json
from contextlib import suppress
from typing import Any

from msgspec import UNSET, to_builtins
from msgspec.structs import asdict, replace

from auditor.bounded.deflated import deflate
from auditor.bounded.json_text import JsonFile
from auditor.checkpoint.snapshot import Component, Snapshot, WeightHeader
from auditor.checkpoint.snapshot_reader import (
    FORMAT,
    VERSION,
    BaseEntry,
    BytesEntry,
    ComponentEntry,
    HeaderEntry,
    PartEntry,
    SnapshotDocument,
)
from auditor.companions.companion_files import CompanionFile
from auditor.redaction import masked

# Longest file stored as text: nearly every config.json, but not the index of a large model.
_LONGEST_TEXT = 16 * 1024

# The keys in which a fine-tune may differ from its base. This part includes the list of files: logs
# and checkpoints of a training have their own names.
_OWN = frozenset(("model", "commit", "config", "files", "skipped", "companions", "published"))


def dump(snapshot: Snapshot, path: str = "") -> bytes:
    """Serialize a snapshot, without `source` and `fetched`; gzip it if `path` ends in .gz."""
    text = json.dumps(_document(snapshot), indent=1, sort_keys=True) + "\n"
    content = masked(text.encode())
    return gzip.compress(content, mtime=0) if path.endswith(".gz") else content


def dump_own_and_shared(snapshot: Snapshot) -> tuple[bytes, bytes]:
    """Serialize the part of a snapshot in which a fine-tune may differ from its base, and the rest.

    `load_own_and_shared` joins both.
    """
    document = _document(snapshot)
    own = {key: document.pop(key) for key in _OWN & document.keys()}
    return json.dumps(own, sort_keys=True).encode(), json.dumps(document, sort_keys=True).encode()


def _document(snapshot: Snapshot) -> dict[str, Any]:
    base, companions, unexamined = snapshot.base, snapshot.companions, snapshot.unexamined
    document = SnapshotDocument(
        format=FORMAT,
        version=VERSION,
        # A path may contain bytes that are not UTF-8.
        model=snapshot.model.encode(errors="replace").decode(),
        commit=snapshot.commit,
        origin=snapshot.origin,
        partial=snapshot.partial,
        files=[replace(file, state=None) for file in snapshot.files],
        config=_text(snapshot.config),
        index=_text(snapshot.index),
        heads=[_head(head) for head in snapshot.headers],
        unopened=list(snapshot.unopened),
        packing=_text(snapshot.packing),
        settings=_text(snapshot.settings),
        manifest=_text(snapshot.manifest),
        torch_copies=[_head(head) for head in snapshot.torch_copies],
        pickles=[_head(head) for head in snapshot.pickles],
        unexamined=None if unexamined is None else list(unexamined),
        base=BaseEntry(**{**asdict(base), "config": _text(base.config)}) if base else UNSET,
        components=[_component(one) for one in snapshot.components],
        companions=None if companions is None else [_companion(one) for one in companions],
        published=list(snapshot.published),
        skipped=list(snapshot.skipped),
        store_version=snapshot.version,
    )
    builtins: dict[str, Any] = to_builtins(document)
    return builtins


def _companion(file: CompanionFile) -> BytesEntry:
    if file.content is None:
        return BytesEntry(name=file.name, unread=file.unread)
    return _bytes(file)


def _component(component: Component) -> ComponentEntry:
    return ComponentEntry(
        name=component.folder,
        config=_text(component.config),
        index=_text(component.index),
        heads=[_head(head) for head in component.headers],
        torch_copies=[_head(head) for head in component.torch_copies],
        unopened=list(component.unopened),
        settings=_text(component.settings),
    )


def _text(file: JsonFile | None) -> BytesEntry | None:
    return None if file is None else _bytes(file)


def _bytes(file: JsonFile) -> BytesEntry:
    """Return a file's entry: plain text if short and UTF-8, else deflated."""
    content = masked(file.content or b"")
    if len(content) <= _LONGEST_TEXT:
        with suppress(UnicodeDecodeError):
            return BytesEntry(name=file.name, text=content.decode())
    return BytesEntry(name=file.name, deflated=deflate(content))


def _head(head: WeightHeader) -> HeaderEntry:
    entry = HeaderEntry(name=head.name, size=head.size)
    if head.parts:
        entry.parts = [
            PartEntry(start=part.start, deflated=deflate(masked(part.data))) for part in head.parts
        ]
    else:
        entry.deflated = deflate(masked(head.prefix))
    return entry
