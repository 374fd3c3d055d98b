"""The outcome of a model in its stored form; models with identical headers are audited once."""

import json
from collections import OrderedDict
from threading import Lock
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec.json
from msgspec.structs import replace

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot import Fetched, Snapshot
from auditor.claims.verdict import PublishedCount
from auditor.findings import Severity
from auditor.formats import as_json
from auditor.report import Report, Unaudited
from auditor.sweep.store.reading import Recorded
from auditor.sweep.store.schema import Shared, StoredNight, StoredObject, compress_text, digest_of
from auditor.sweep.workers.outcome_key import outcome_key

T = TypeVar("T")

# Bytes of all remembered values. A packed outcome of BERT has 4.6 kB and its packed headers have
# 3.2 kB, so outcomes of some 900 base models fit, or headers of some 1,300.
_MOST = 4 * 1024 * 1024
_MOST_OF_ONE = 256 * 1024


class Recent(Generic[T]):
    """A cache of the most recently used values, limited in bytes; thread-safe."""

    def __init__(self, most: int = _MOST, most_of_one: int = _MOST_OF_ONE) -> None:
        """Limit the bytes of all values together to `most`, and of each value to `most_of_one`."""
        self._most, self._most_of_one = most, most_of_one
        self._lock = Lock()
        self._values: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        self._size = 0

    def get(self, digest: bytes) -> T | None:
        with self._lock:
            entry = self._values.get(digest)
            if entry is None:
                return None
            self._values.move_to_end(digest)
            return entry[0]

    def put(self, digest: bytes, value: T, size: int) -> None:
        """Remember a value of `size` bytes, unless it is too large."""
        if size > self._most_of_one:
            return
        with self._lock:
            if digest in self._values:
                return
            self._values[digest] = value, size
            self._size += size
            while self._size > self._most:
                _, (_, removed) = self._values.popitem(last=False)
                self._size -= removed


class RememberedOutcome(NamedTuple):
    """The part of the outcome that is equal for all models with the same outcome key."""

    summary: StoredNight
    shared: Shared
    claims: tuple[PublishedCount, ...]  # claims quote the name of the first model

    def of_model(self, snapshot: Snapshot) -> Recorded:
        """Return the outcome in its stored form, with the name, commit and cost of this model."""
        model = snapshot.model
        claims = tuple(
            replace(claim, key=model) if claim.where == "name" else claim for claim in self.claims
        )
        own = _own_text(model, model, snapshot.commit, snapshot.fetched, claims)
        summary = self.summary._replace(**_cost(snapshot.fetched))
        return Recorded(summary, StoredObject(compress_text(own), self.shared))


def audited(
    snapshot: Snapshot, remembered: Recent[RememberedOutcome], engines: tuple[str, ...] = ()
) -> Recorded:
    """Return the outcome of a model in its stored form; take it from `remembered` if possible.

    An outcome is remembered if no sentence and no finding names the model, and if the expectation
    is a closed form, because the oracle may read any key of a config.
    """
    key = outcome_key(snapshot)
    known_outcome = remembered.get(key) if key else None
    if known_outcome:
        return known_outcome.of_model(snapshot)
    outcome = examine(snapshot, Options(requested=snapshot.model, engines=engines))
    by_closed_form = outcome.expected is not None and outcome.expected.by == "closed-form"
    if key is None or isinstance(outcome, Unaudited) or outcome.parts or not by_closed_form:
        return recorded(outcome)
    text = _shared_text(outcome)
    record = _recorded_in_two(outcome, text)
    shared = record.stored_outcome.shared
    if shared and msgspec.json.encode(snapshot.model)[1:-1] not in text:
        shared_outcome = RememberedOutcome(record.summary, shared, outcome.claims)
        remembered.put(key, shared_outcome, len(shared.content))
    return record


def recorded(outcome: Report | Unaudited) -> Recorded:
    """Return an outcome in its stored form.

    A report is split into a part that other models may share and the model's own part. An unaudited
    outcome, which is short, and outcomes of components name the model, so they are not split.
    """
    if isinstance(outcome, Unaudited) or outcome.parts:
        return Recorded(
            summary_of(outcome), StoredObject(compress_text(as_json.stored_text(outcome)))
        )
    return _recorded_in_two(outcome, _shared_text(outcome))


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


def _recorded_in_two(outcome: Report | Unaudited, shared: bytes) -> Recorded:
    own = _own_text(
        outcome.requested, outcome.model, outcome.commit, outcome.fetched, outcome.claims
    )
    shared_part = Shared(digest_of(shared), compress_text(shared))
    return Recorded(summary_of(outcome), StoredObject(compress_text(own), shared_part))


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
