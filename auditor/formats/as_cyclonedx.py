"""--format cyclonedx: a bill of materials in the JSON of CycloneDX 1.6 (ML-BOM).

Each model is a component with a model card, and its files are components with the sha256 that the
Hub lists, or that was computed of a local file. Nothing that was not read is written: a folder has
hashes and a licence only with AuditRequest.materials, and only a reconciled model has counts. The
text has no time and no serial number, so that the same outcome gives the same bytes.
cyclonedx-python-lib has no model cards yet; tests use its validator.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any
from urllib.parse import quote

from auditor.formats import View
from auditor.formats.json_values import json_text
from auditor.report import Report, Unaudited
from auditor.version import VERSION

_MODEL = "machine-learning-model"


def files(outcomes: Sequence[Report | Unaudited], _view: View) -> Mapping[str, str]:
    """Return one document, with a component for each model."""
    tool = {"type": "application", "name": "hf-audit", "version": VERSION}
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"tools": {"components": [tool]}},
        "components": _different(map(_model, outcomes)),
    }
    return {"bom.cdx.json": f"{json_text(document, indent=2)}\n"}


def _different(components: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return components without repetitions, which the schema forbids."""
    return [*{json_text(component): component for component in components}.values()]


def _model(outcome: Report | Unaudited) -> dict[str, Any]:
    name = outcome.model or outcome.requested
    parts = (
        {"type": _MODEL, "name": part.component or "", "modelCard": _model_card(part)}
        for part in outcome.parts
    )
    component: dict[str, Any] = {
        "type": _MODEL,
        "name": name,
        "modelCard": _model_card(outcome),
        "components": _different(chain(_files(outcome), parts)),
    }
    if outcome.commit:
        component["version"] = outcome.commit
        component["purl"] = f"pkg:huggingface/{quote(name)}@{outcome.commit}"
    if outcome.card and outcome.card.licenses:
        licenses = ({"name": name, "acknowledgement": "declared"} for name in outcome.card.licenses)
        component["licenses"] = [{"license": license_} for license_ in licenses]
    if outcome.card and outcome.card.base_models:
        bases = ({"type": _MODEL, "name": name} for name in outcome.card.base_models)
        component["pedigree"] = {"ancestors": _different(bases)}
    return component


def _files(outcome: Report | Unaudited) -> Iterator[dict[str, Any]]:
    for file in outcome.files:
        component: dict[str, Any] = {"type": "file", "name": file.name}
        if file.sha256:
            component["hashes"] = [{"alg": "SHA-256", "content": file.sha256}]
        if file.size is not None:
            component["properties"] = [_property("size", file.size)]
        yield component


def _model_card(outcome: Report | Unaudited) -> dict[str, Any]:
    """Return the model card: architecture, datasets, and the result of the audit as properties."""
    datasets = outcome.card.datasets if outcome.card else ()
    parameters = {
        "architectureFamily": outcome.model_type,
        "modelArchitecture": outcome.target,
        "datasets": [{"type": "dataset", "name": name} for name in datasets],
    }
    return {
        "modelParameters": {key: value for key, value in parameters.items() if value},
        "properties": [*_properties(outcome)],
    }


def _properties(outcome: Report | Unaudited) -> Iterator[dict[str, str]]:
    yield _property("verdict", outcome.verdict)
    observed, expected = outcome.observed, outcome.expected
    if isinstance(outcome, Report) and observed and observed.parameters is not None:
        yield _property("parameters", observed.parameters)
        if expected and expected.active:
            yield _property("parameters:active", expected.active.parameters)
        for weights in observed.weights:
            yield _property(f"parameters:{weights.dtype}", weights.parameters)
    if observed and observed.layout:
        yield _property("quantization", observed.layout)
    for finding in outcome.findings:
        yield _property(f"finding:{finding.severity}:{finding.kind}", finding.reason)
    for sentence in outcome.unchecked:
        yield _property("unchecked", sentence)


def _property(name: str, value: object) -> dict[str, str]:
    return {"name": f"hf-audit:{name}", "value": str(value)}
