"""Values of a config in JSON, as every reader of JSON takes them."""

from collections.abc import Mapping
from math import isfinite
from typing import Any


def finite(value: Any) -> Any:
    """A value of a config as JSON has it: NaN and Infinity, which Python reads, as their names."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [finite(one) for one in value]
    if isinstance(value, Mapping):
        return {key: finite(one) for key, one in value.items()}
    return value
