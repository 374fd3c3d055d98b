"""The implications of a config, as JSON: the tree that `audit explain` prints, with its legend."""

from auditor.formats.as_json import SCHEMA, as_object
from auditor.formats.json_values import json_text
from auditor.report import Report, Unaudited

_OF_THE_MODEL = ("requested", "model", "commit", "source", "target", "model_type")
_OF_A_MODULE = ("prefix", "depth", "expected", "formula")


def render(outcome: Report | Unaudited, *, depth: int | None = None) -> str:
    """One object on one line; keys that `audit --format json` has as well mean the same.

    `reason` and `detail` say why nothing is expected, and are null where something is.
    """
    known = as_object(outcome)
    total = outcome.expected.parameters if outcome.expected else None
    rows = [
        {key: row[key] for key in _OF_A_MODULE}
        | {"share": (row["expected"] or 0) / total if total else None}
        for row in known["modules"]
        if depth is None or row["depth"] <= depth
    ]
    unknown = outcome.expected is None
    found = {
        "schema": SCHEMA,
        **{key: known[key] for key in _OF_THE_MODEL},
        "expected": known["expected"],
        "modules": rows,
        "kv_cache": known["kv_cache"],
        "findings": known["findings"],
        "reason": known["reason"] if unknown else None,
        "detail": known["detail"] if unknown else None,
    }
    return json_text(found) + "\n"
