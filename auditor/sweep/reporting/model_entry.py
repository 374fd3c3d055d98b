"""One model of a night, with all that reports show of it."""

from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property

from msgspec import Struct

from auditor.formats.csv_rows import Outcome, Row, with_components
from auditor.sweep.reporting.baseline import Baseline
from auditor.sweep.reporting.changes import (
    Change,
    Matched,
    causes,
    findings,
    matched,
    of_cause,
    of_finding,
    of_model,
)
from auditor.sweep.store.reading import Compared, Result


class ModelState(StrEnum):
    """How a model stands, the worst first."""

    NEW = "new"  # an error or a warning that was not there before and is not accepted
    OPEN = "open"  # none of those, but one that was there
    UNAUDITED = "unaudited"
    PENDING = "pending"  # planned, and not audited yet
    ACCEPTED = "accepted"  # all that would alarm is in the baseline
    CLEAN = "clean"


ALARMING = ("error", "warning")


class ModelEntry(Struct, frozen=True, kw_only=True, dict=True):
    """A model tonight, what changed since the night before, and what is accepted of it."""

    model: str
    outcome: Outcome | None  # None: no longer selected
    why: tuple[Matched, ...]  # the causes of findings
    matches: tuple[Matched, ...]
    accepted: tuple[str | None, ...]  # of each match: why; None: it is not
    excused: str | None  # why it is accepted that the model is not audited
    blind: bool  # of a model with findings: a component is not audited, and that is not accepted
    moves: tuple[Row, ...]  # what changed of the model itself, as rows of changes.csv
    commits: tuple[str | None, str | None]  # before, tonight

    @property
    def verdict(self) -> str | None:
        return self.outcome.get("verdict") if self.outcome else None

    @cached_property
    def standing(self) -> tuple[tuple[Matched, str | None], ...]:
        """Tonight's findings, and why they are accepted."""
        both = zip(self.matches, self.accepted, strict=True)
        return tuple((match, why) for match, why in both if match.tonight is not None)

    @cached_property
    def alarms(self) -> tuple[Matched, ...]:
        """Tonight's errors and warnings that are not accepted."""
        return tuple(
            match
            for match, why in self.standing
            if why is None and match.finding["severity"] in ALARMING
        )

    @property
    def unexplained(self) -> bool:
        """Whether a residual is left, which cannot be accepted: it is a fault of our own."""
        return any(one.get("residual") for one in with_components(self.outcome or {}))

    @cached_property
    def state(self) -> ModelState | None:
        """None: no longer selected."""
        if self.outcome is None:
            return None
        if any(match.change in {Change.NEW, Change.CHANGED} for match in self.alarms):
            return ModelState.NEW
        if self.alarms or self.unexplained:
            return ModelState.OPEN
        if self.verdict == "findings":
            return ModelState.UNAUDITED if self.blind else ModelState.ACCEPTED
        if self.verdict == "unaudited":
            return ModelState.ACCEPTED if self.excused is not None else ModelState.UNAUDITED
        return ModelState.CLEAN if self.verdict == "clean" else ModelState.PENDING

    def changes(self) -> tuple[Row, ...]:
        """The rows of changes.csv and of open.csv: causes, the model itself, findings."""
        before, commit = self.commits
        key = {"model": self.model, "commit_sha": commit, "commit_sha_before": before}
        both = zip(self.matches, self.accepted, strict=True)
        found = ({**of_finding(match), "accepted": why} for match, why in both)
        return tuple({**row, **key} for row in (*map(of_cause, self.why), *self.moves, *found))


def entry_of(compared: Compared, baseline: Baseline, *, first: bool) -> ModelEntry:
    """The entry of one model; `first`: no night before has any model."""
    model = compared.model
    outcome = _outcome(compared.tonight) if compared.tonight else None
    before = _before(compared, outcome)
    unseen = _unseen(outcome, before)
    why, matches = (
        matched(of(outcome) if outcome else (), of(before) if before else (), unseen=unseen)
        for of in (causes, findings)
    )
    reason = outcome.get("reason") if outcome else None
    commit = compared.tonight.commit_sha if compared.tonight else None
    return ModelEntry(
        model=model,
        outcome=outcome,
        why=why,
        matches=matches,
        accepted=tuple(
            baseline.accepted(model, match.tonight) if match.tonight else None for match in matches
        ),
        excused=baseline.excused(model, reason) if reason else None,
        blind=_blind(model, outcome, baseline),
        moves=tuple(of_model(outcome, before, first=first)),
        commits=(before.get("commit") if before else None, commit or None),
    )


def _blind(model: str, outcome: Outcome | None, baseline: Baseline) -> bool:
    """Whether a component of an audited model is not audited, and the reason is not accepted."""
    if outcome is None or outcome.get("verdict") != "findings":
        return False
    reasons = [str(part["reason"]) for part in outcome.get("parts", ()) if part.get("reason")]
    return any(baseline.excused(model, reason) is None for reason in reasons)


def _unseen(outcome: Outcome | None, before: Outcome | None) -> tuple[str | None, ...]:
    """The components that could not be looked at as they were before; None for the model itself.

    What was found of one that could not be audited was found of its files alone, and is looked for
    wherever these are read.
    """
    if outcome is None:
        return (None,)
    of_files = {one.get("component") for one in _unaudited(before or {})}
    return tuple(
        one.get("component")
        for one in _unaudited(outcome)
        if not (one.get("observed") and one.get("component") in of_files)
    )


def _unaudited(outcome: Outcome) -> Iterator[Outcome]:
    return (
        one for one in with_components(outcome) if one.get("verdict") not in {"clean", "findings"}
    )


def _before(compared: Compared, outcome: Outcome | None) -> Outcome | None:
    """What was known before; the same object where it is the same, so that it is read once."""
    tonight, before = compared.tonight, compared.before
    if before is None:
        return None
    if tonight and before.content is not None and _kept(tonight) == _kept(before):
        return outcome
    return _outcome(before)


def _kept(result: Result) -> tuple[bytes | None, bytes | None]:
    return result.content, result.shared_content


def _outcome(result: Result) -> Outcome:
    """The stored outcome; of a model that is not audited yet, what the plan says."""
    return result.outcome or {
        "requested": result.requested,
        "model": result.model,
        "commit": result.commit_sha or None,
        "verdict": None,
    }
