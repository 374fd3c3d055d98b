"""Bytes as people say them."""

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024


def size(count: int, digits: int | None = None) -> str:
    """`14.96 GiB`, or with so many digits that count; whole bytes below 1,024."""
    value, unit = float(count), 0
    while value >= _STEP and unit < len(_UNITS) - 1:
        value, unit = value / _STEP, unit + 1
    if not unit:
        return f"{count} bytes"
    decimals = 2 if digits is None else max(0, digits - len(str(int(value))))
    return f"{value:,.{decimals}f} {_UNITS[unit]}"
