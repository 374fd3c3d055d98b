"""JSON: how every command encodes it, values that every reader accepts, a finding's identity."""

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

# Values made of a report hold no cycles; not looking for them takes 376 us of a BERT, not 410 us.
_COMPACT = json.JSONEncoder(allow_nan=False, separators=(",", ":"), check_circular=False)


def json_text(value: Any, *, indent: int | None = None) -> str:
    r"""Encode a value in ASCII, on one line unless it is indented.

    Control characters, bidi overrides and lone surrogates become \u escapes, and so does the second
    of two number signs: `##[error]` in a name is no command to the log that the line is printed to.
    """
    if indent is None:
        text = _COMPACT.encode(value)
    else:
        text = json.dumps(value, allow_nan=False, indent=indent, check_circular=False)
    return text.replace("##", r"#\u0023")


def finite(value: Any) -> Any:
    """Return a config's value as JSON can have it: NaN and Infinity become their names."""
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, list):
        return [finite(one) for one in value]
    if isinstance(value, Mapping):
        return {key: finite(one) for key, one in value.items()}
    return value


def identity(finding: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what identifies a finding from audit to audit, within its model, in any order.

    The finding is as JSON has it, with its component.
    """
    place = (finding.get("component") or "", finding.get("file") or "")
    return (finding["kind"], *place, *sorted(finding["folded"]))
