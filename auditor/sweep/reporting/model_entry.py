"""One model of a night, with all that reports show of it."""

from enum import StrEnum
from functools import cached_property

from msgspec import Struct

from auditor.formats.csv_rows import Outcome, Row, with_components
from auditor.sweep.reporting import changes
from auditor.sweep.reporting.baseline import Baseline
from auditor.sweep.reporting.changes import Change, Finding, Matched, matched
from auditor.sweep.store.reading import Compared, Result


class ModelState(StrEnum):
    """How a model stands, the worst first."""

    NEW = "new"  # an error or a warning that was not there before and is not accepted
    OPEN = "open"  # none of those, but one that was there
    UNAUDITED = "unaudited"
    PENDING = "pending"  # planned, and not audited yet
    ACCEPTED = "accepted"  # all that would alarm is in the baseline
    CLEAN = "clean"


class ModelEntry(Struct, frozen=True, kw_only=True, dict=True):
    """A model tonight, what changed since the night before, and what is accepted of it."""

    model: str
    outcome: Outcome  # empty: no longer selected
    causes: tuple[Matched, ...]  # why findings are there
    matches: tuple[Matched, ...]  # the findings
    blind: bool  # it, or a component of it, is not audited, and that is not accepted
    moves: tuple[Row, ...]  # what changed of the model itself, as rows of changes.csv
    commits: tuple[str | None, str | None]  # before, tonight

    @cached_property
    def alarms(self) -> tuple[Matched, ...]:
        """Tonight's errors and warnings that are not accepted."""
        return tuple(one for one in self.matches if one.alarming and one.accepted is None)

    @property
    def news(self) -> tuple[Matched, ...]:
        """Those of the alarms that are new, or say something else than before."""
        return tuple(one for one in self.alarms if one.change in {Change.NEW, Change.CHANGED})

    def causes_of(self, finding: Finding) -> tuple[Finding, ...]:
        """The causes of tonight that explain a finding of it, in the same component."""
        found = [match.tonight for match in self.causes if match.tonight is not None]
        names = finding.get("cause", "").split("; ")
        same = [cause for cause in found if cause["component"] == finding.get("component")]
        return tuple(cause for cause in same if cause["kind"] in names)

    @property
    def unexplained(self) -> bool:
        """Whether a residual is left, which cannot be accepted: it is a fault of our own."""
        return any(one.get("residual") for one in with_components(self.outcome))

    @cached_property
    def state(self) -> ModelState | None:
        """None: no longer selected."""
        if not self.outcome:
            return None
        if self.news:
            return ModelState.NEW
        if self.alarms or self.unexplained:
            return ModelState.OPEN
        verdict = self.outcome.get("verdict")
        if verdict in {"findings", "unaudited"}:
            return ModelState.UNAUDITED if self.blind else ModelState.ACCEPTED
        return ModelState.CLEAN if verdict == "clean" else ModelState.PENDING

    def changes(self) -> tuple[Row, ...]:
        """The rows of changes.csv and of open.csv: causes, the model itself, findings."""
        before, commit = self.commits
        key = {"model": self.model, "commit_sha": commit, "commit_sha_before": before}
        found = map(changes.of_finding, self.matches)
        rows = (*map(changes.of_cause, self.causes), *self.moves, *found)
        return tuple({**row, **key} for row in rows)


def entry_of(compared: Compared, baseline: Baseline, *, first: bool) -> ModelEntry:
    """The entry of one model; `first`: no night before has any model."""
    model, planned, last = compared
    outcome = _outcome(planned)
    # Read once where it is the same, which it is of most models.
    same = planned and last and last.content is not None and _kept(planned) == _kept(last)
    before = outcome if same else _outcome(last)
    unseen = _unseen(outcome, before)
    matches = matched(changes.findings(outcome), changes.findings(before), unseen=unseen)
    return ModelEntry(
        model=model,
        outcome=outcome,
        causes=matched(changes.causes(outcome), changes.causes(before), unseen=unseen),
        matches=tuple(_accepting(one, model, baseline) for one in matches),
        blind=_blind(model, outcome, baseline),
        moves=tuple(changes.of_model(outcome, before, first=first)),
        commits=(before.get("commit"), (planned.commit_sha if planned else None) or None),
    )


def _accepting(match: Matched, model: str, baseline: Baseline) -> Matched:
    """The same, with why the baseline accepts it."""
    if match.tonight is None:
        return match
    kind, names = match.tonight["kind"], match.tonight["names"]
    return match._replace(accepted=baseline.accepted(model, kind, names))


def _blind(model: str, outcome: Outcome, baseline: Baseline) -> bool:
    """Whether there is something that is not audited, for a reason that is not accepted."""
    verdict = outcome.get("verdict")
    if verdict in {None, "clean"}:
        return verdict is None
    unaudited = (outcome,) if verdict == "unaudited" else outcome.get("parts", ())
    reasons = (str(one["reason"]) for one in unaudited if one.get("reason"))
    return any(baseline.accepted(model, reason) is None for reason in reasons)


def _unseen(outcome: Outcome, before: Outcome) -> tuple[str | None, ...]:
    """The components that could not be looked at as they were before; None for the model itself.

    What was found of one that could not be audited was found of its files alone, and is looked for
    wherever these are read.
    """
    if not outcome:
        return (None,)
    unaudited, unaudited_before = (
        [one for one in with_components(of) if one.get("verdict") not in {"clean", "findings"}]
        for of in (outcome, before)
    )
    of_files = {one.get("component") for one in unaudited_before}
    return tuple(
        one.get("component")
        for one in unaudited
        if not (one.get("observed") and one.get("component") in of_files)
    )


def _kept(result: Result) -> tuple[bytes | None, bytes | None]:
    return result.content, result.shared_content


def _outcome(result: Result | None) -> Outcome:
    """The stored outcome; of a model that is not audited yet, what the plan says."""
    if result is None:
        return {}
    return result.outcome or {
        "requested": result.requested,
        "model": result.model,
        "commit": result.commit_sha or None,
        "verdict": None,
    }
