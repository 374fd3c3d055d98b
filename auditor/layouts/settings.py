"""Settings that a checkpoint declares for its layout, read with distrust."""

from collections.abc import Collection

from auditor.containers.words import described
from auditor.layouts.packing import Declared, Ledger


def integer(
    declared: Declared,
    key: str,
    allowed: Collection[int],
    ledger: Ledger,
    *,
    default: int | None = None,
) -> int | None:
    """An integer among `allowed`; the default where there is none; anything else: None, a fault."""
    value = declared.settings.get(key)
    if value is None:
        return default
    if type(value) is int and value in allowed:
        return value
    known = f"{allowed[0]} to {allowed[-1]:,}" if isinstance(allowed, range) else _listed(allowed)
    ledger.fault(f"{key} of {declared.where} is {described(value)}; {known} is needed")
    return None


def texts(declared: Declared | None, key: str) -> frozenset[str]:
    """The strings of a list; empty where there is no list."""
    value = declared.settings.get(key) if declared else None
    items = value if isinstance(value, list) else []
    return frozenset(item for item in items if isinstance(item, str))


def _listed(allowed: Collection[int]) -> str:
    *rest, last = map(str, sorted(allowed))
    return f"{', '.join(rest)} or {last}" if rest else last
