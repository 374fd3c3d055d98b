"""The parser of a sharded checkpoint's index: the file of each tensor, and the stated totals."""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType

from msgspec import DecodeError, Raw, Struct
from msgspec.json import decode

from auditor.bounded.json_text import MAX_TEXT, Loaded, examined, load_object
from auditor.errors import CheckpointError
from auditor.messages import described, named, quoted
from auditor.names.parts import folder_of
from auditor.tensors import names_fault

MAX_INDEX = MAX_TEXT  # bytes; DeepSeek-V3's index with its 92,000 names has 8.9 MB
# Files of one model. The largest known have 163 and 191; 100,000 took 4.5 seconds and 125 MB.
MAX_SHARDS = 10_000
MAX_NAMES = 250_000  # tensors; headers have the same limit (`downloader/headers.py`)
_MAX_VALUES = 300_000  # JSON values: the tensors and the metadata
_MOST_QUOTES = 4 * _MAX_VALUES  # two quoted names for each tensor

_PART_BYTES = 255  # longest file name on ext4, APFS and NTFS
_PATH_BYTES = 4096  # PATH_MAX of Linux
_I64_MAX = 2**63 - 1  # the size of the largest possible file
_KEY_QUOTES = 4  # the quotes of "metadata" and "weight_map"
_SHOWN = 5  # names that a message shows
_HERE = "./"  # a prefix that does not change a path
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class _PlainIndex(Struct, forbid_unknown_fields=True):
    """An index in the form that writers use, with exactly these two keys."""

    metadata: Raw
    weight_map: dict[str, str]


class Index(Struct, frozen=True, kw_only=True, dict=True):
    """The contents of an index, not compared with the files."""

    file: str  # path inside the repo, "/" between folders
    weight_map: Mapping[str, str]  # tensor -> shard; read-only
    total_size: int | float | None  # bytes, as written; None: absent or faulty
    total_parameters: int | float | None  # as written; None: absent or faulty
    faults: tuple[str, ...] = ()  # sentences; none makes the weight_map unusable
    hub_fault: str | None = None  # why the shards are found in a folder, but not on the Hub

    @cached_property
    def shards(self) -> tuple[str, ...]:
        """The paths of the shards, relative to the index's own folder, sorted."""
        return tuple(sorted(set(self.weight_map.values())))


def parse_index(file: str, content: bytes) -> Index:
    """Parse an index; if a name is repeated, the last shard counts, as in transformers.

    `faults` reports repeated names and impossible totals. Raise CheckpointError if the
    weight_map is unusable or names a file outside the index's folder.
    """
    plain = _plainly_written(file, content)
    index, repeated = plain or load_object(content, file, values=_MAX_VALUES)
    weight_map = _weight_map(named(file), index)
    paths = _paths(named(file), weight_map)
    # One string for each shard: json creates one for each tensor, 8 MB for DeepSeek-V3.
    shards = map(paths.__getitem__, weight_map.values())
    metadata = index.get("metadata")
    totals = metadata if isinstance(metadata, dict) else {}
    return Index(
        file=file,
        weight_map=MappingProxyType(dict(zip(weight_map, shards, strict=True))),
        total_size=_count(totals.get("total_size")),
        total_parameters=_count(totals.get("total_parameters")),
        faults=(*_repeated_faults(named(file), repeated), *_metadata_faults(named(file), metadata)),
        hub_fault=_hub_fault(named(file), paths),
    )


def _plainly_written(file: str, content: bytes) -> Loaded | None:
    """Parse an index in the usual form fast; None if `load_object` has to read it.

    This is four times faster. Without escapes, each name with its file takes four quotes, so
    additional quotes show a repeated key. The quotes also bound the number of names.
    """
    quotes = content.count(b'"')
    if b"\\" in content or len(content) > MAX_INDEX or quotes > _MOST_QUOTES:
        return None
    try:
        index = decode(content, type=examined(_PlainIndex))
        metadata = bytes(index.metadata)
        totals, repeated = load_object(metadata, file)
    except (DecodeError, UnicodeDecodeError, RecursionError, CheckpointError):
        return None
    if quotes != _KEY_QUOTES + metadata.count(b'"') + 4 * len(index.weight_map):
        return None
    return Loaded({"metadata": totals, "weight_map": index.weight_map}, repeated)


def shard_fault(shard: str) -> str | None:
    """Return why a shard name cannot be a file in or below the index's folder; None if it can.

    The name is untrusted, and becomes part of a path and of a URL.
    """
    parts = shard.split("/")
    longest = max(len(part.encode(errors="surrogatepass")) for part in parts)
    faults = (
        (not shard, "is empty"),
        (_CONTROL.search(shard), "has control characters"),
        ("\\" in shard, "has a backslash"),
        (_SCHEME.match(shard), "is a URL or begins with a drive"),
        (shard.startswith("/"), "is an absolute path"),
        (".." in parts, "leaves the folder of the index"),
        ("" in parts or "." in parts, "has a folder or file name that is empty or '.'"),
        (longest > _PART_BYTES, f"has a part of {longest:,} bytes, expected at most {_PART_BYTES}"),
        (len(shard.encode(errors="surrogatepass")) > _PATH_BYTES, "is longer than any path"),
    )
    return next((fault for bad, fault in faults if bad), None)


def _weight_map(subject: str, index: dict[str, object]) -> dict[str, str]:
    """Return the weight_map: the file of each tensor, as written."""
    if "weight_map" not in index:
        keys = ", ".join(quoted(key) for key in list(index)[:_SHOWN]) or "none"
        raise CheckpointError(
            f"{subject} has no weight_map, expected an index; its keys are {keys}"
        )
    weight_map = index["weight_map"]
    if not isinstance(weight_map, dict):
        raise CheckpointError(
            f"{subject}: weight_map is {described(weight_map)}, expected an object"
        )
    if not weight_map:
        raise CheckpointError(f"{subject}: weight_map is empty, expected the file of each tensor")
    if set(map(type, weight_map.values())) != {str}:
        tensor, shard = next(item for item in weight_map.items() if type(item[1]) is not str)
        raise CheckpointError(
            f"{subject}: weight_map has {described(shard)} under {quoted(tensor)}, expected a file"
        )
    if len(weight_map) > MAX_NAMES:
        raise CheckpointError(
            f"{subject} names {len(weight_map):,} tensors, expected at most {MAX_NAMES:,}"
        )
    if fault := names_fault(weight_map):
        raise CheckpointError(f"{subject} {fault}")
    return weight_map


def _paths(subject: str, weight_map: Mapping[str, str]) -> dict[str, str]:
    """Map each file name to its path relative to the index's folder: `./a` is `a`."""
    shards = sorted(set(weight_map.values()))
    if len(shards) > MAX_SHARDS:
        raise CheckpointError(
            f"{subject} names {len(shards):,} files, expected at most {MAX_SHARDS:,}"
        )
    paths = {shard: shard.removeprefix(_HERE) for shard in shards}
    for shard, path in paths.items():
        if fault := shard_fault(path):
            raise CheckpointError(f"{subject}: the shard {quoted(shard)} {fault}")
    return paths


def _hub_fault(subject: str, paths: Mapping[str, str]) -> str | None:
    """Return why transformers cannot find the shards on the Hub; None if it can.

    On the Hub a prefix `./` is not removed; an index of a single shard works nevertheless.
    """
    shard = next((shard for shard, path in paths.items() if shard != path), None)
    if shard is None or len(paths) == 1:
        return None
    loads = "from_pretrained finds it in a folder, and not on the Hub"
    return f"{subject} writes {quoted(shard)} for {quoted(paths[shard])}: {loads}"


def _count(value: object) -> int | float | None:
    """Return the value if it is a possible total, an integer or a float; None otherwise."""
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _I64_MAX:
        return value
    return None


def _metadata_faults(subject: str, metadata: object) -> Iterator[str]:
    if metadata is not None and not isinstance(metadata, dict):
        yield f"{subject}: metadata is {described(metadata)}, expected an object"
        return
    for key in ("total_size", "total_parameters"):
        value = (metadata or {}).get(key)
        if value is not None and _count(value) is None:
            yield f"{subject}: {key} is {described(value)}, expected a count"


def _repeated_faults(subject: str, repeated: tuple[str, ...]) -> Iterator[str]:
    if repeated:
        keys = ", ".join(quoted(key) for key in repeated[:_SHOWN])
        more = f" and {len(repeated) - _SHOWN:,} more" if len(repeated) > _SHOWN else ""
        yield f"{subject} repeats keys, and the last value of each counts: {keys}{more}"


def indexed_files(index: Index | None) -> Mapping[str, str]:
    """Return {tensor: path of its file in the repository}, as the index places it."""
    if index is None:
        return {}
    folder = folder_of(index.file)
    return {name: f"{folder}{shard}" for name, shard in index.weight_map.items()}
