"""A key that is equal for two snapshots only if an audit gives both the same outcome. Pure.

A fine-tune has the headers of its base byte for byte, so its outcome is known once the base's is.
Every field of a snapshot is a part of the key, including fields that are added later. `_READ` lists
the exceptions: fields that an audit only copies, or reads in part.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec.msgpack
from msgspec import Struct

from auditor.checkpoint.selecting import is_weights
from auditor.checkpoint.snapshot import RepoFile, Snapshot, TextFile, WeightHeader
from auditor.claims.published import sizes_in

# Keys of a config.json that record its writer. No family and no rule reads their values; a test
# changes them and compares the outcomes.
WRITERS = ("_name_or_path", "transformers_version")
# Only values of plain text are emptied: other bytes may make the config unreadable.
_WRITER = re.compile(rf'("(?:{"|".join(WRITERS)})"\s*:\s*)"[ !#-\[\]-~]{{0,200}}"'.encode())

# Files that no rule reads: documentation, pictures, and logs and results of a training.
_UNREAD_FILE = re.compile(
    r"(?:.*/)?(?:events\.out\.tfevents\.[^/]*|\.git[^/]*|(?:license|notice)[^/]*"
    r"|(?:trainer_state|(?:all|train|eval)_results)\.json|[^/]*\.(?:md|png|jpe?g|gif|svg|log))",
    re.IGNORECASE | re.DOTALL,
)


def outcome_key(snapshot: Snapshot) -> bytes | None:
    """Return the key of a snapshot's outcome; None if a name in the snapshot is not Unicode."""
    try:
        return sha256(msgspec.msgpack.encode(_read(snapshot), enc_hook=_plain)).digest()
    except UnicodeEncodeError:  # a lone surrogate
        return None


def _read(value: object) -> object:
    """Return the parts of a value that an audit reads; a Struct becomes the list of its fields."""
    if isinstance(value, Struct):
        partly = _READ.get(type(value), {})
        return [
            _read(partly[name](value) if name in partly else getattr(value, name))
            for name in value.__struct_fields__
        ]
    return [_read(item) for item in value] if isinstance(value, tuple) else value


def _plain(value: object) -> object:
    """Return a path as bytes, which msgspec can encode; raise TypeError for any other type."""
    if isinstance(value, Path):
        return bytes(value)
    raise TypeError(type(value).__name__)


def _nothing(_record: object) -> None:
    """Return None in place of a field that outcomes do not depend on."""


def _config(snapshot: Snapshot) -> object:
    """Return the config's name and its bytes, with the values of the `WRITERS` keys emptied."""
    config = snapshot.config
    return config and (config.name, _WRITER.sub(rb'\1""', config.content))


def _files(snapshot: Snapshot) -> Iterator[tuple[str, int | None]]:
    """Yield the names of the files, with the sizes of weight files; skip unread files.

    In a repository of several models, or in an incomplete copy, yield all files and sizes, because
    an audit checks whether a folder has any file at all.
    """
    all_count = snapshot.partial or snapshot.manifest or snapshot.components
    for file in snapshot.files:
        if all_count or is_weights(file.name):
            yield file.name, file.size
        elif not _UNREAD_FILE.fullmatch(file.name):
            yield file.name, None


_READ: Mapping[type[Struct], Mapping[str, Callable[[Any], object]]] = {
    Snapshot: {
        "model": lambda snapshot: sizes_in(snapshot.model),  # an outcome copies the rest
        "commit": lambda snapshot: snapshot.commit is None,  # an outcome only copies the commit
        "fetched": _nothing,  # an outcome only copies the value
        "card_base": _nothing,  # only --base and --values read it
        "card": _nothing,  # only bills of materials contain it
        "config": _config,
        "files": lambda snapshot: tuple(_files(snapshot)),
    },
    # Only --base, --values and --verify read digests.
    RepoFile: {"sha256": _nothing, "blob_id": _nothing},
    # `known` is parsed from the bytes of the record; only --values reads the state of a file.
    WeightHeader: {"known": _nothing, "state": _nothing},
    TextFile: {"known": _nothing},
}
