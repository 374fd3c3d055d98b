"""Settings that a checkpoint declares for its layout, read with distrust."""

from collections.abc import Collection, Mapping
from typing import Any

from auditor.layouts.packing import Declared, PackingLedger
from auditor.messages import described

_SIDES = 2
_LONGEST = 1 << 24  # of a block or a group: above all layers there are


def integer_setting(
    declared: Declared,
    key: str,
    allowed: Collection[int],
    ledger: PackingLedger,
    *,
    default: int | None = None,
) -> int | None:
    """An integer among `allowed`; the default if the key is absent; otherwise None, a fault."""
    value = declared.settings.get(key)
    if value is None:
        return default
    if type(value) is int and value in allowed:
        return value
    known = f"{allowed[0]} to {allowed[-1]:,}" if isinstance(allowed, range) else _listed(allowed)
    ledger.fault(f"{key} of {declared.where} is {described(value)}; {known} is needed")
    return None


def string_list(declared: Declared | None, key: str) -> frozenset[str]:
    """The strings of a list; empty where the value is not a list."""
    value = declared.settings.get(key) if declared else None
    items = value if isinstance(value, list) else []
    return frozenset(item for item in items if isinstance(item, str))


def object_or_empty(value: object) -> Mapping[str, Any]:
    """The value if it is an object, else one without keys."""
    return value if isinstance(value, Mapping) else {}


def block_sides(value: object) -> tuple[int, int] | None:
    """The two sides of a block, as `[128, 128]` has them; None: the value says no such thing."""
    if not isinstance(value, list) or len(value) != _SIDES:
        return None
    rows, columns = value
    known = all(type(side) is int and 0 < side < _LONGEST for side in (rows, columns))
    return (rows, columns) if known else None


def _listed(allowed: Collection[int]) -> str:
    *rest, last = map(str, sorted(allowed))
    return f"{', '.join(rest)} or {last}" if rest else last
