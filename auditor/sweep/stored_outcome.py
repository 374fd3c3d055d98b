"""The stored form of an outcome: columns, its own text, and a text that others share."""

import json
from typing import Any

from msgspec.structs import replace

from auditor.checkpoint.snapshot import Fetched
from auditor.claims.verdict import PublishedCount
from auditor.findings import Severity
from auditor.formats import as_json
from auditor.report import Report, Unaudited
from auditor.sweep.store.reading import Recorded
from auditor.sweep.store.schema import Shared, StoredNight, StoredObject, compress_text, digest_of


def recorded(outcome: Report | Unaudited) -> Recorded:
    """Return an outcome in its stored form.

    A report is split into a part that other models may share and the model's own part. An unaudited
    outcome, which is short, and outcomes of components name the model, so they are not split.
    """
    if isinstance(outcome, Unaudited) or outcome.parts:
        return Recorded(
            summary_of(outcome), StoredObject(compress_text(as_json.stored_text(outcome)))
        )
    shared = _shared_text(outcome)
    own = _own_text(
        outcome.requested, outcome.model, outcome.commit, outcome.fetched, outcome.claims
    )
    shared_part = Shared(digest_of(shared), compress_text(shared))
    return Recorded(summary_of(outcome), StoredObject(compress_text(own), shared_part))


def summary_of(outcome: Report | Unaudited) -> StoredNight:
    """Return the verdict and the counts of an outcome as columns of the store."""
    severities = [finding.severity for part in outcome.every for finding in part.findings]
    observed, expected = outcome.observed, outcome.expected
    return StoredNight(
        verdict=outcome.verdict,
        reason=outcome.reason.value if isinstance(outcome, Unaudited) else None,
        target=outcome.target,
        model_type=outcome.model_type,
        errors=severities.count(Severity.ERROR),
        warnings=severities.count(Severity.WARNING),
        infos=severities.count(Severity.INFO),
        blind=sum(isinstance(part, Unaudited) for part in outcome.parts),
        residual=outcome.residual if isinstance(outcome, Report) else None,
        tensors=observed.tensors if observed else None,
        elements=observed.elements if observed else None,
        parameters=observed.parameters if observed else None,
        expected=expected.parameters if expected else None,
        **_cost(outcome.fetched),
    )


def _shared_text(outcome: Report | Unaudited) -> bytes:
    """Return the JSON of an outcome with empty values for its name, commit, cost and claims."""
    shared = replace(outcome, requested="", model=None, commit=None, fetched=Fetched(), claims=())
    return as_json.stored_text(shared)


def _own_text(
    requested: str,
    model: str | None,
    commit: str | None,
    fetched: Fetched,
    claims: tuple[PublishedCount, ...],
) -> bytes:
    """Return the JSON of a model's own values, which replace those of the shared text."""
    own: dict[str, Any] = {
        "requested": requested,
        "model": model,
        "commit": commit,
        "fetched": _cost(fetched),
    }
    if claims:
        own["claims"] = as_json.claims_object(claims)
    return json.dumps(own, separators=(",", ":")).encode()  # lone surrogates, too


def _cost(fetched: Fetched) -> dict[str, Any]:
    return {"requests": fetched.requests, "bytes": fetched.bytes, "seconds": fetched.seconds}
