"""Make auditor/formats/report.schema.json from the structs of the report's JSON.

`python tools/rewrite_documents.py` writes it; comments of fields are its descriptions.
"""

import ast
import inspect
import io
import json
import tokenize
from collections.abc import Iterator, Mapping
from itertools import groupby
from textwrap import dedent
from typing import Any

import msgspec.json
from msgspec.structs import fields

from auditor.findings import FINDING_KINDS
from auditor.formats import document
from auditor.formats.document import Document
from auditor.reconciler.tensor_values import ModuleChanges

_WIDTH = 170
_COMPUTED = {"nan", "inf"}  # of a field that may be None
_HEAD = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Audit of one checkpoint, schema 1",
    "description": "One object a model. Keys are only ever added. null: unknown or not applicable.",
    "type": "object",
}
_REASON = {
    "if": {"properties": {"verdict": {"const": "unaudited"}}},
    "then": {
        "properties": {
            "reason": {"type": "string"},
            "detail": {"type": "string"},
            "residual": {"type": "null"},
        }
    },
    "else": {"properties": {"reason": {"type": "null"}, "detail": {"type": "null"}}},
}


def schema_text() -> str:
    """Return the schema: a definition for each struct, that of the outcome at the top."""
    _, components = msgspec.json.schema_components([Document], ref_template="#/$defs/{name}")
    described = (*vars(document).values(), ModuleChanges)
    structs = {one.__name__: one for one in described if isinstance(one, type)}
    definitions = {}
    for name, component in components.items():
        if "description" in component:  # msgspec keeps the indentation up to 0.22
            component["description"] = inspect.cleandoc(component["description"])
        is_object = component.get("type") == "object"
        strict = _strict(component, structs.get(name)) if is_object else component
        definitions[_shorter(name)] = _renamed(strict)
    finding = definitions["RecordedFinding"]
    finding.pop("additionalProperties")
    evidence_keys = {key for row in FINDING_KINDS for key in row.evidence._written}
    finding["required"] = [key for key in finding["properties"] if key not in evidence_keys]
    finding["oneOf"] = [*_evidence()]
    finding["unevaluatedProperties"] = False
    outcome = definitions.pop("Document")
    del outcome["description"]
    for side in ("Expected", "Observed"):  # only an older version may have written null
        outcome["properties"][side.lower()] = {"$ref": f"#/$defs/{side}"}
    outcome["properties"]["verdict"] = {"enum": ["clean", "findings", "unaudited"]}
    schema = {**_HEAD, **outcome, **_REASON, "$defs": definitions}
    return _printed(_with_null(schema), 0) + "\n"


def _strict(component: Mapping[str, Any], struct: type | None) -> dict[str, Any]:
    """Require all keys of an object and allow no others; describe its properties."""
    comments = _comments(struct) if struct else {}
    properties = {
        key: {**value, **({"description": comments[key]} if comments.get(key) else {})}
        for key, value in component["properties"].items()
    }
    for value in properties.values():
        value.pop("default", None)
    return {
        **{key: value for key, value in component.items() if key != "title"},
        "properties": properties,
        "required": [*properties],
        "additionalProperties": False,
    }


def _comments(struct: type) -> dict[str, str]:
    """Return the comment of each key: at the end of its field's line, or on the lines above it."""
    found: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if not base.__module__.startswith("auditor."):
            continue
        source = dedent(inspect.getsource(base))
        by_line = {
            token.start[0]: token.string.removeprefix("#").strip()
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT
        }
        lines = source.splitlines()
        for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                above, at = [by_line.get(node.end_lineno, "")], node.lineno - 1
                while lines[at - 1].strip().startswith("#"):
                    above.insert(0, by_line[at])
                    at -= 1
                found[_key(struct, node.target.id)] = " ".join(filter(None, above))
    return found


def _key(struct: type, field: str) -> str:
    """Return the JSON key of a field."""
    encoded = {one.name: one.encode_name for one in fields(struct)}
    return encoded.get(field, field)


def _shorter(name: str) -> str:
    return name.removesuffix("Object")


def _renamed(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: _renamed(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_renamed(one) for one in node]
    if isinstance(node, str) and node.startswith("#/$defs/"):
        short = _shorter(node)
        return "#" if short == "#/$defs/Document" else short
    return node


def _evidence() -> Iterator[Mapping[str, Any]]:
    """Yield the keys of each class of evidence, with the kinds that have it."""
    rows = sorted(FINDING_KINDS, key=lambda row: (row.evidence.__name__, row.kind))
    for evidence, kinds in groupby(rows, lambda row: row.evidence):
        keys = evidence._written
        # Keys whose field may be None are written for some of these kinds only.
        defaults = {one.name: one.default for one in fields(evidence)}
        absent = {key for key in keys if key in _COMPUTED or defaults.get(key, "") is None}
        yield {
            "properties": {
                "kind": {"enum": [*dict.fromkeys(row.kind for row in kinds)]},
                **dict.fromkeys(keys, True),
            },
            "required": [key for key in keys if key not in absent],
        }


def _with_null(node: Any) -> Any:
    """Write `{"type": ["string", "null"]}` for a simple type or null."""
    if isinstance(node, list):
        return [_with_null(one) for one in node]
    if not isinstance(node, dict):
        return node
    either = node.get("anyOf", ())
    if len(either) == 2 and "type" in either[0] and either[1] == {"type": "null"}:
        others = {key: value for key, value in node.items() if key != "anyOf"}
        node = {**either[0], "type": [either[0]["type"], "null"], **others}
    return {key: _with_null(value) for key, value in node.items()}


def _printed(node: Any, indent: int) -> str:
    """Print JSON with each object and list on one line if it fits."""
    line = json.dumps(node)
    if len(line) + indent <= _WIDTH or not isinstance(node, dict | list):
        return line
    inner = " " * (indent + 2)
    if isinstance(node, list):
        items = [_printed(one, indent + 2) for one in node]
        return "[\n" + ",\n".join(f"{inner}{one}" for one in items) + f"\n{' ' * indent}]"
    items = [f"{json.dumps(key)}: {_printed(value, indent + 2)}" for key, value in node.items()]
    return "{\n" + ",\n".join(f"{inner}{one}" for one in items) + f"\n{' ' * indent}}}"
