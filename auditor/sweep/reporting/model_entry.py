"""The data of one model of a night that all reports show."""

from collections.abc import Sequence
from enum import StrEnum
from functools import cached_property

from msgspec import Struct

from auditor.formats.as_csv import Row
from auditor.formats.document import Document, ListedFinding
from auditor.sweep.reporting import changes
from auditor.sweep.reporting.baseline import Baseline
from auditor.sweep.reporting.changes import NO_OUTCOME, ChangeKind, Matched, matched
from auditor.sweep.store.reading import Compared, Result

_AUDITED = ("clean", "findings")  # verdicts


class ModelState(StrEnum):
    """The state of a model in a night; the worst state is first."""

    NEW = "new"  # a new error or warning that is not accepted
    OPEN = "open"  # only known errors or warnings that are not accepted
    UNAUDITED = "unaudited"
    PENDING = "pending"  # planned, not audited yet
    ACCEPTED = "accepted"  # the baseline accepts all errors and warnings
    CLEAN = "clean"


class ModelEntry(Struct, frozen=True, kw_only=True, dict=True):
    """A model tonight, its changes since the night before, and its accepted findings."""

    model: str
    outcome: Document  # NO_OUTCOME: the model is no longer selected
    causes: tuple[Matched, ...]  # causes of the findings, matched between the nights
    matches: tuple[Matched, ...]  # findings, matched between the nights
    blind: bool  # whether the model or a component is unaudited for a reason that is not accepted
    moves: tuple[Row, ...]  # changes of the model itself, as rows of changes.csv
    commits: tuple[str | None, str | None]  # before, tonight
    pushed: str | None = None  # the time of tonight's commit, by the Hub; None: unknown
    authors: str | None = None  # of tonight's commit, by the Hub; None: unknown

    @property
    def push(self) -> Row:
        """The time and the authors of tonight's commit, as tables and summary.json name them."""
        return {"last_modified": self.pushed, "commit_authors": self.authors}

    @cached_property
    def alarms(self) -> tuple[Matched, ...]:
        """Tonight's errors and warnings that are not accepted."""
        return tuple(match for match in self.matches if match.alarming and match.accepted is None)

    @property
    def news(self) -> tuple[Matched, ...]:
        """Tonight's errors and warnings that are new or changed, and not accepted."""
        return tuple(
            match for match in self.alarms if match.change in {ChangeKind.NEW, ChangeKind.CHANGED}
        )

    def causes_of(self, finding: ListedFinding) -> tuple[ListedFinding, ...]:
        """Return tonight's causes that explain a finding, in the finding's component."""
        causes = [match.tonight for match in self.causes if match.tonight is not None]
        return tuple(
            cause
            for cause in causes
            if cause.component == finding.component and cause.kind in finding.causes
        )

    @property
    def unexplained(self) -> bool:
        """Whether findings leave a residual of parameters: a bug that no baseline accepts."""
        return any(part.residual for part in self.outcome.every)

    @cached_property
    def state(self) -> ModelState | None:
        """The state of the model tonight; None if the model is no longer selected."""
        if self.outcome is NO_OUTCOME:
            return None
        if self.news:
            return ModelState.NEW
        if self.alarms or self.unexplained:
            return ModelState.OPEN
        verdict = self.outcome.verdict
        if verdict in {"findings", "unaudited"}:
            return ModelState.UNAUDITED if self.blind else ModelState.ACCEPTED
        return ModelState.CLEAN if verdict == "clean" else ModelState.PENDING

    def changes(self) -> tuple[Row, ...]:
        """Return the rows of changes.csv and open.csv: causes, the model itself, findings."""
        before, commit = self.commits
        key = {"model": self.model, "commit_sha": commit, "commit_sha_before": before}
        finding_rows = map(changes.of_finding, self.matches)
        rows = (*map(changes.of_cause, self.causes), *self.moves, *finding_rows)
        return tuple({**row, **key, **self.push} for row in rows)


def entry_of(compared: Compared, baseline: Baseline, *, first: bool) -> ModelEntry:
    """Return the entry of one model; `first` is whether this is the first night."""
    model, planned, last = compared
    outcome = _outcome(planned)
    # Most outcomes are the same as before: unpack these only once.
    before = outcome if compared.is_unchanged else _outcome(last)
    unseen = _unseen(outcome, before)
    matches = tuple(
        _with_acceptance(match, model, baseline)
        for match in matched(changes.findings(outcome), changes.findings(before), unseen=unseen)
    )
    causes = matched(changes.causes(outcome), changes.causes(before), unseen=unseen)
    return ModelEntry(
        model=model,
        outcome=outcome,
        causes=tuple(_cause_with_acceptance(cause, matches) for cause in causes),
        matches=matches,
        blind=_blind(model, outcome, baseline),
        moves=tuple(changes.of_model(outcome, before, first=first)),
        commits=(before.commit, (planned.commit_sha if planned else None) or None),
        pushed=planned.last_modified if planned else None,
        authors=planned.commit_authors if planned else None,
    )


def _with_acceptance(match: Matched, model: str, baseline: Baseline) -> Matched:
    """Return the match; add the baseline's reason if the baseline accepts the finding."""
    if match.tonight is None:
        return match
    finding = match.tonight
    accepted = baseline.accepted(model, finding.kind, finding.names, finding.causes)
    return match._replace(accepted=accepted)


def _cause_with_acceptance(cause: Matched, matches: Sequence[Matched]) -> Matched:
    """Return a cause; add the baseline's reason if all findings that it explains are accepted."""
    if cause.tonight is None:
        return cause
    component, kind = cause.tonight.component, cause.tonight.kind
    explained = [
        match
        for match in matches
        if match.alarming and match.finding.component == component and kind in match.finding.causes
    ]
    if not explained or any(match.accepted is None for match in explained):
        return cause
    return cause._replace(accepted=explained[0].accepted)


def _blind(model: str, outcome: Document, baseline: Baseline) -> bool:
    """Whether the model or a component is unaudited, for a reason that is not accepted."""
    verdict = outcome.verdict
    if verdict in {None, "clean"}:
        return verdict is None
    unaudited = (outcome,) if verdict == "unaudited" else outcome.parts
    reasons = (str(part.reason) for part in unaudited if part.reason)
    return any(baseline.accepted(model, reason) is None for reason in reasons)


def _unseen(outcome: Document, before: Document) -> tuple[str | None, ...]:
    """Return the components whose earlier findings cannot be checked tonight; None is the model.

    If a component was unaudited before, its earlier findings are only about its files; they are
    checked tonight if its files are read, even if the component is unaudited again.
    """
    if outcome is NO_OUTCOME:
        return (None,)
    unaudited, unaudited_before = (
        [part for part in either.every if part.verdict not in _AUDITED]
        for either in (outcome, before)
    )
    names_before = {part.component for part in unaudited_before}
    return tuple(
        part.component
        for part in unaudited
        if part.component not in names_before
        or part.observed is None
        or part.observed.tensors is None
    )


def _outcome(result: Result | None) -> Document:
    """Return the stored outcome; if the model is not audited yet, its id, commit and no verdict."""
    if result is None:
        return NO_OUTCOME
    commit = result.commit_sha or None
    return result.document or Document(
        requested=result.requested, model=result.model, commit=commit
    )
