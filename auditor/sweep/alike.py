"""Models that are alike, audited once: fine-tunes have the headers of their base, byte for byte."""

import json
from collections import OrderedDict
from dataclasses import dataclass, replace
from hashlib import sha256
from threading import Lock

from auditor.audit import examine
from auditor.downloader import dump
from auditor.downloader.snapshot import Fetched, Snapshot
from auditor.formats import as_json
from auditor.reconciler.findings import Severity
from auditor.report import Report, Unaudited
from auditor.sweep.store import Recorded, Summary, pack

# Keys of a config.json that say who wrote it. No family and no rule reads one; a test changes
# them and looks for a difference.
UNREAD = ("_name_or_path", "transformers_version")

_MOST_KEPT = 16 * 1024 * 1024  # characters of all templates; a BERT's has 62 kB
_MOST_OF_ONE = 1024 * 1024
_UNFETCHED = '"fetched":{"requests":0,"bytes":0,"seconds":0.0},'


@dataclass(frozen=True, kw_only=True)
class _Template:
    """An outcome's JSON without what differs between models that are alike."""

    middle: str  # from behind the commit up to what was fetched
    end: str
    summary: Summary

    def filled(self, snapshot: Snapshot) -> Recorded:
        fetched = snapshot.fetched
        cost = {"requests": fetched.requests, "bytes": fetched.bytes, "seconds": fetched.seconds}
        known = f'"fetched":{json.dumps(cost, separators=(",", ":"))},'
        text = f"{_opening(snapshot)}{self.middle}{known}{self.end}"
        return Recorded(_with(self.summary, fetched), pack(text.encode()))


class Alike:
    """Audits snapshots, and remembers the outcomes of those that stand for others; thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: OrderedDict[bytes, _Template] = OrderedDict()
        self._kept = 0

    def examine(self, snapshot: Snapshot) -> tuple[Recorded, Report | Unaudited | None]:
        """The outcome as it is recorded, and as it is where it had to be worked out.

        An outcome is a function of the config's values and of the snapshot's other parts; of the
        model's name only in three fields and in sentences of what could not be audited, which is
        why that is not remembered. What transformers makes of a config is not either: it may
        read any key.
        """
        key = _key(snapshot)
        with self._lock:
            known = self._known.get(key) if key else None
            if known and key:
                self._known.move_to_end(key)
        if known:
            return known.filled(snapshot), None
        outcome = examine(snapshot, requested=snapshot.model)
        text = as_json.render(outcome)
        if key and isinstance(outcome, Report) and len(text) <= _MOST_OF_ONE:
            self._remember(key, outcome, snapshot, text)
        return Recorded(summary(outcome), pack(text.encode())), outcome

    def _remember(self, key: bytes, report: Report, snapshot: Snapshot, text: str) -> None:
        if report.parts or report.expected is None or report.expected.origin != "closed-form":
            return
        opening = _opening(snapshot)
        bare = text
        if snapshot.fetched != Fetched():
            bare = as_json.render(replace(report, fetched=Fetched()))
        middle, found, end = bare.removeprefix(opening).partition(_UNFETCHED)
        if not bare.startswith(opening) or not found:
            raise ValueError("the JSON of an outcome is not what a template is cut from")
        template = _Template(middle=middle, end=end, summary=summary(report))
        with self._lock:
            if key not in self._known:
                self._known[key] = template
                self._kept += len(middle) + len(end)
            while self._kept > _MOST_KEPT:
                _, oldest = self._known.popitem(last=False)
                self._kept -= len(oldest.middle) + len(oldest.end)


def summary(outcome: Report | Unaudited) -> Summary:
    """The columns of an outcome."""
    severities = [finding.severity for one in outcome.every for finding in one.findings]
    observed, expected = outcome.observed, outcome.expected
    return Summary(
        verdict=outcome.verdict,
        reason=outcome.reason.value if isinstance(outcome, Unaudited) else None,
        target=outcome.target,
        model_type=outcome.model_type,
        errors=severities.count(Severity.ERROR),
        warnings=severities.count(Severity.WARNING),
        infos=severities.count(Severity.INFO),
        residual=outcome.residual if isinstance(outcome, Report) else None,
        tensors=observed.tensors if observed else None,
        elements=observed.elements if observed else None,
        parameters=observed.parameters if observed else None,
        expected=expected.parameters if expected else None,
        requests=outcome.fetched.requests,
        bytes=outcome.fetched.bytes,
        seconds=outcome.fetched.seconds,
    )


def recorded(outcome: Report | Unaudited) -> Recorded:
    """An outcome as it is written."""
    return Recorded(summary(outcome), pack(as_json.render(outcome).encode()))


def _with(known: Summary, fetched: Fetched) -> Summary:
    return known._replace(requests=fetched.requests, bytes=fetched.bytes, seconds=fetched.seconds)


def _opening(snapshot: Snapshot) -> str:
    """How the JSON of an audit of this snapshot begins."""
    name, commit = json.dumps(snapshot.model), json.dumps(snapshot.commit)
    return f'{{"schema":{as_json.SCHEMA},"requested":{name},"model":{name},"commit":{commit},'


def _key(snapshot: Snapshot) -> bytes | None:
    """The same for models that are alike; None: the config is none that can be compared."""
    if snapshot.config is None:
        return None
    try:
        values = json.loads(snapshot.config.content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(values, dict):
        return None
    values = {name: value for name, value in values.items() if name not in UNREAD}
    rest = dump(replace(snapshot, model="", commit=None, config=None), indent=None)
    digest = sha256(f"{snapshot.source} {snapshot.config.name}\n".encode())
    digest.update(json.dumps(values).encode())
    digest.update(b"\n")
    digest.update(rest)
    return digest.digest()
