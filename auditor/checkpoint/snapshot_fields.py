"""The fields of a snapshot file's JSON, each held to what it may be. Pure."""

import re
from collections.abc import Sequence
from itertools import pairwise

from auditor.checkpoint.packed_content import SnapshotFaultError
from auditor.checkpoint.selecting import name_fault
from auditor.messages import described, listed

_COMMIT = re.compile(r"[0-9a-f]{40}")
_HEX = re.compile(r"[0-9a-f]*")
_LARGEST = 2**64 - 1


def object_of(entry: object, what: str, *shapes: str) -> dict[str, object]:
    """An object with exactly the keys of one of the shapes."""
    if not isinstance(entry, dict):
        raise SnapshotFaultError(f"{what}: expected an object, found {described(entry)}")
    if " ".join(sorted(entry)) not in shapes:
        keys = " or ".join(f"({shape})" for shape in shapes)
        raise SnapshotFaultError(f"{what}: expected the keys {keys}, found {listed(sorted(entry))}")
    return entry


def list_of(entry: object, what: str, *, twice: bool = False) -> Sequence[object]:
    """A list whose entries are in the order of their names, none of them `twice`."""
    if not isinstance(entry, list):
        raise SnapshotFaultError(f"{what}: expected a list, found {described(entry)}")
    names = [one.get("name") if isinstance(one, dict) else one for one in entry]
    texts = [name for name in names if isinstance(name, str)]
    if any(later < name or (later == name and not twice) for name, later in pairwise(texts)):
        raise SnapshotFaultError(f"{what}: its names are not sorted, or one is there twice")
    return entry


def string_of(entry: object, what: str) -> str:
    if not isinstance(entry, str):
        raise SnapshotFaultError(f"{what}: expected a string, found {described(entry)}")
    return entry


def flag_of(entry: object, what: str) -> bool:
    if not isinstance(entry, bool):
        raise SnapshotFaultError(f"{what}: expected true or false, found {described(entry)}")
    return entry


def name_of(entry: object) -> str:
    name = string_of(entry, "name")
    if fault := name_fault(name):
        raise SnapshotFaultError(fault)
    return name


def number_of(entry: object, what: str) -> int:
    if type(entry) is not int or not 0 <= entry <= _LARGEST:
        found = described(entry)
        raise SnapshotFaultError(f"{what}: expected a whole number below 2**64, found {found}")
    return entry


def size_of(entry: object) -> int | None:
    return None if entry is None else number_of(entry, "size")


def hex_digits_of(entry: object, what: str, digits: int) -> str | None:
    """So many hex digits."""
    if entry is None:
        return None
    if not isinstance(entry, str) or len(entry) != digits or not _HEX.fullmatch(entry):
        raise SnapshotFaultError(f"{what}: expected {digits} hex digits, found {described(entry)}")
    return entry


def commit_of(entry: object) -> str | None:
    if entry is None:
        return None
    if not isinstance(entry, str) or not _COMMIT.fullmatch(entry):
        raise SnapshotFaultError(f"commit: expected 40 hex digits, found {described(entry)}")
    return entry
