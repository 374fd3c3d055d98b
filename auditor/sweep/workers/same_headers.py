"""Models that are alike, audited once: fine-tunes have the headers of their base, byte for byte.

What a process remembers of the models that it has seen it remembers within bounds.
"""

import json
from collections import OrderedDict
from hashlib import sha256
from threading import Lock
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.selecting import ADAPTER_CONFIG, is_weights
from auditor.checkpoint.snapshot import Fetched, Snapshot
from auditor.formats import as_json
from auditor.reconciler.findings import Severity
from auditor.report import Report, Unaudited
from auditor.sweep.store.packing import Kept, Shared, compress_text, digest_of
from auditor.sweep.store.reading import Recorded
from auditor.sweep.store.schema import StoredNight

T = TypeVar("T")

# Keys of a config.json that say who wrote it. No family and no rule reads one; a test changes
# them and looks for a difference.
UNREAD = ("_name_or_path", "transformers_version")

# Bytes that are remembered of packed outcomes, of which a BERT's has 4.6 kB, and as many of packed
# headers, of which a BERT's has 3.2: those of some 900 bases, and of 1,300.
_MOST_KEPT = 4 * 1024 * 1024
_MOST_OF_ONE = 256 * 1024


def audited(snapshot: Snapshot, rest: bytes, known: "Recent[Recorded]") -> Recorded:
    """The outcome as it is recorded; from what is `known`, of a model that is alike.

    `rest` is the digest of the snapshot's `dump_shared`. An outcome is a function of it, of the
    config's values and of the names of weight files; of the model's name only in three fields and
    in sentences of what could not be audited, which is why that is not remembered. What
    transformers makes of a config is not either: it may read any key.
    """
    key = _key(snapshot, rest)
    alike = known.get(key) if key else None
    if alike:
        own = _own(snapshot.model, snapshot.model, snapshot.commit, snapshot.fetched)
        summary = alike.summary._replace(**_cost(snapshot.fetched))
        return Recorded(summary, Kept(own, alike.kept.shared))
    outcome = examine(snapshot, Options(requested=snapshot.model))
    record = recorded(outcome)
    shared = record.kept.shared
    if key and shared and outcome.expected and outcome.expected.by == "closed-form":
        known.put(key, record, len(shared.content))
    return record


def recorded(outcome: Report | Unaudited) -> Recorded:
    """An outcome as it is written.

    A report is kept apart from what is the model's own; what could not be audited is short and
    names the model, and parts name it too.
    """
    if isinstance(outcome, Unaudited) or outcome.parts:
        return Recorded(summary_of(outcome), Kept(compress_text(as_json.stored_text(outcome))))
    nobodys = replace(outcome, requested="", model=None, commit=None, fetched=Fetched())
    text = as_json.stored_text(nobodys)
    own = _own(outcome.requested, outcome.model, outcome.commit, outcome.fetched)
    return Recorded(summary_of(outcome), Kept(own, Shared(digest_of(text), compress_text(text))))


def summary_of(outcome: Report | Unaudited) -> StoredNight:
    """The columns of an outcome."""
    severities = [finding.severity for one in outcome.every for finding in one.findings]
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


def _own(requested: str, model: str | None, commit: str | None, fetched: Fetched) -> bytes:
    """What of an outcome's JSON no other model's has, packed."""
    own = {"requested": requested, "model": model, "commit": commit, "fetched": _cost(fetched)}
    return compress_text(json.dumps(own, separators=(",", ":")).encode())  # lone surrogates, too


def _cost(fetched: Fetched) -> dict[str, Any]:
    return {"requests": fetched.requests, "bytes": fetched.bytes, "seconds": fetched.seconds}


def _key(snapshot: Snapshot, rest: bytes) -> bytes | None:
    """The same for models that are alike; None: the config, or what is beside it, is their own."""
    if snapshot.config is None or snapshot.companions is not None:
        return None
    try:
        values = json.loads(snapshot.config.content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    values = {name: value for name, value in values.items() if name not in UNREAD}
    digest = sha256(f"{snapshot.source} {snapshot.config.name}\n".encode())
    several = snapshot.manifest or snapshot.components
    files = [(file.name, file.size) for file in snapshot.files if several or _tells(file.name)]
    digest.update(json.dumps([values, files]).encode())
    digest.update(rest)
    return digest.digest()


def _tells(name: str) -> bool:
    """Whether it says something that the file is there: of weights, and of an adapter's config."""
    return is_weights(name) or name.endswith(ADAPTER_CONFIG)


class Recent(Generic[T]):
    """Values by digest: those that were asked for last, as many as fit; thread-safe."""

    def __init__(self, most: int = _MOST_KEPT, most_of_one: int = _MOST_OF_ONE) -> None:
        """The largest number of bytes of all values together, and of one."""
        self._most, self._most_of_one = most, most_of_one
        self._lock = Lock()
        self._known: OrderedDict[bytes, tuple[T, int]] = OrderedDict()
        self._size = 0

    def get(self, digest: bytes) -> T | None:
        with self._lock:
            known = self._known.get(digest)
            if known is None:
                return None
            self._known.move_to_end(digest)
            return known[0]

    def put(self, digest: bytes, value: T, size: int) -> None:
        """Remember a value of that many bytes, unless that is too much for one."""
        if size > self._most_of_one:
            return
        with self._lock:
            if digest in self._known:
                return
            self._known[digest] = value, size
            self._size += size
            while self._size > self._most:
                _, (_, gone) = self._known.popitem(last=False)
                self._size -= gone
