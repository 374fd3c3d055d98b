"""The writer of snapshot files, which snapshot_reader.py reads. Pure and deterministic."""

import gzip
import json
from contextlib import suppress

from msgspec import to_builtins
from msgspec.structs import asdict

from auditor.bounded.deflated import deflate
from auditor.checkpoint.snapshot import Component, RepoFile, Snapshot, TextFile, WeightHeader
from auditor.checkpoint.snapshot_reader import FORMAT, VERSION
from auditor.companions.companion_files import CompanionFile
from auditor.redaction import masked

# Longest file stored as text: nearly every config.json, but not the index of a large model.
_LONGEST_TEXT = 16 * 1024


def dump(snapshot: Snapshot, path: str = "") -> bytes:
    """Serialize a snapshot, without `source` and `fetched`; gzip it if `path` ends in .gz."""
    document = {**_own_part(snapshot), **_shared_part(snapshot)}
    content = masked((json.dumps(document, indent=1, sort_keys=True) + "\n").encode())
    return gzip.compress(content, mtime=0) if path.endswith(".gz") else content


def dump_own(snapshot: Snapshot) -> bytes:
    """Return the bytes of the part of a snapshot in which a fine-tune may differ from its base.

    This part includes the list of files: logs and checkpoints of a training have their own names.
    """
    return json.dumps(_own_part(snapshot), sort_keys=True).encode()


def dump_shared(snapshot: Snapshot) -> bytes:
    """Return the bytes of the part that `dump_own` omits; `load_own_and_shared` joins both."""
    return json.dumps(_shared_part(snapshot), sort_keys=True).encode()


def _own_part(snapshot: Snapshot) -> dict[str, object]:
    companions: dict[str, object] = {}
    if snapshot.companions is not None:
        companions["companions"] = [_companion(one) for one in snapshot.companions]
    skipped = {"skipped": to_builtins(snapshot.skipped)} if snapshot.skipped else {}
    published: dict[str, object] = {}
    if snapshot.published:
        published["published"] = [
            {"name": size.name, "text": size.text} for size in snapshot.published
        ]
    return {
        "model": snapshot.model.encode(
            errors="replace"
        ).decode(),  # a path may contain bytes that are not UTF-8
        "commit": snapshot.commit,
        "config": _text(snapshot.config),
        "files": [_file_entry(file) for file in snapshot.files],
        **skipped,
        **companions,
        **published,
    }


def _file_entry(file: RepoFile) -> dict[str, object]:
    digests = {"sha256": file.sha256, "blob_id": file.blob_id}
    declared = {key: digest for key, digest in digests.items() if digest is not None}
    return {"name": file.name, "size": file.size, **declared}


def _shared_part(snapshot: Snapshot) -> dict[str, object]:
    document: dict[str, object] = {
        "format": FORMAT,
        "version": VERSION,
        "origin": snapshot.origin,
        "index": _text(snapshot.index),
        "heads": [_head(head) for head in snapshot.headers],
        "unopened": list(snapshot.unopened),
        "partial": snapshot.partial,
    }
    if snapshot.torch_copies:
        document["torch_copies"] = [_head(head) for head in snapshot.torch_copies]
    if snapshot.pickles:
        document["pickles"] = [_head(head) for head in snapshot.pickles]
    if snapshot.unexamined is not None:
        document["unexamined"] = list(snapshot.unexamined)
    if snapshot.base:
        document["base"] = {**asdict(snapshot.base), "config": _text(snapshot.base.config)}
    if snapshot.packing:
        document["packing"] = _text(snapshot.packing)
    if snapshot.settings:
        document["settings"] = _text(snapshot.settings)
    if snapshot.manifest:
        document["manifest"] = _text(snapshot.manifest)
    if snapshot.components:
        document["components"] = [_component(one) for one in snapshot.components]
    return document


def _companion(file: CompanionFile) -> dict[str, object] | None:
    if file.content is None:
        return {"name": file.name, "unread": file.unread}
    return _text(TextFile(name=file.name, content=file.content))


def _component(component: Component) -> dict[str, object]:
    settings = {"settings": _text(component.settings)} if component.settings else {}
    return {
        **settings,
        "name": component.folder,
        "config": _text(component.config),
        "index": _text(component.index),
        "heads": [_head(head) for head in component.headers],
        "torch_copies": [_head(head) for head in component.torch_copies],
        "unopened": list(component.unopened),
    }


def _text(file: TextFile | None) -> dict[str, object] | None:
    """Return a file's entry: plain text if short and UTF-8, else deflated; None for no file."""
    if file is None:
        return None
    content = masked(file.content)
    if len(content) <= _LONGEST_TEXT:
        with suppress(UnicodeDecodeError):
            return {"name": file.name, "text": content.decode()}
    return {"name": file.name, "deflated": deflate(content)}


def _head(head: WeightHeader) -> dict[str, object]:
    entry: dict[str, object] = {"name": head.name, "size": head.size}
    if head.parts:
        parts = [
            {"start": part.start, "deflated": deflate(masked(part.data))} for part in head.parts
        ]
        return entry | {"parts": parts}
    return entry | {"deflated": deflate(masked(head.prefix))}
