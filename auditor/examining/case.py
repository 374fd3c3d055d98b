"""One model under examination, and the ways in which that ends."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from auditor.analytic import Expectation
from auditor.analytic.choose import Choice
from auditor.downloader.snapshot import Snapshot
from auditor.downloader.standard import dtype_of
from auditor.downloader.words import listed
from auditor.errors import Reason
from auditor.expecting import Implied, Opinion
from auditor.layouts import learned
from auditor.layouts.packing import PLAIN, Unpacked
from auditor.reconciler.besides import besides
from auditor.reconciler.claims import other_model_rule
from auditor.reconciler.contents import Contents
from auditor.reconciler.findings import BadConfig, Finding
from auditor.reconciler.ignore import Ignore, split
from auditor.reconciler.modules import compared, expected_only, stored_only
from auditor.reconciler.reconcile import Reconciled, reconcile
from auditor.reconciler.rules import (
    dtype_rule,
    implied_note,
    implied_rules,
    index_rules,
    packed_size_rule,
)
from auditor.reconciler.said import where
from auditor.reconciler.twins import twin_findings, unread_twins
from auditor.reconciler.weights import weights
from auditor.report import Report, Unaudited, in_order, observed_side, residual
from auditor.walker import Walk, walk


class Case(NamedTuple):
    """One snapshot under examination."""

    snapshot: Snapshot
    found: Contents
    depth: int | None
    ignore: tuple[Ignore, ...]
    shared: dict[str, Any]  # fields of the outcome that are known so far
    contradictions: list[str]  # of the config with itself, where its shapes follow all the same

    def know(self, **fields: Any) -> None:
        self.shared.update(fields)

    def knowing(self, findings: tuple[Finding, ...]) -> "Case":
        """The case with more that was found of its files."""
        found = replace(self.found, findings=(*self.found.findings, *findings))
        return self._replace(found=found) if findings else self

    def know_choice(self, choice: Choice, said: tuple[str, ...]) -> None:
        notes = (*said, *choice.notes)
        self.know(target=choice.target, model_type=choice.model_type, notes=notes)
        if choice.contradiction:
            self.contradictions.append(choice.contradiction)


# --- it is compared ---------------------------------------------------------------------------


def report(
    case: Case, dtype: str | None, implied: Implied, unpacked: Unpacked, opinion: Opinion
) -> Report:
    found, (expectation, family) = case.found, implied
    shapes = not found.names_only
    reconciled = reconcile(
        found.tensors,
        expectation,
        family,
        indexed=found.index.weight_map if found.index else {},
        unread=found.unread,
        unpacked=unpacked,
        shared=found.shared,
    )
    walked = walk(reconciled.counted, depth=case.depth)
    layout = None if unpacked is PLAIN else unpacked.layout
    held = weights(reconciled, walked) if shapes else ()
    observed = observed_side(walked, case.snapshot, shapes=shapes, layout=layout, weights=held)
    findings = (
        *found.findings,
        *contradictions(case),
        *reconciled.findings,
        *opinion.findings,
        *_rules(found, dtype, reconciled, walked, expectation.parameters),
        *_other_model(case.snapshot, reconciled, expectation),
        *twin_findings(case.snapshot, found),
        *besides(case.snapshot),
    )
    stand, left_out = split(findings, case.ignore)
    if found.names_only and found.index is not None and unpacked is PLAIN:
        note = implied_note(found.index, reconciled, dtype)
        case.know(notes=(*case.shared.get("notes", ()), *((note,) if note else ())))
    return Report(
        observed=observed,
        modules=compared(reconciled, expectation, walked, depth=case.depth, shapes=shapes),
        findings=in_order(stand),
        ignored=in_order(left_out),
        unchecked=(
            *_unchecked(found, dtype, unpacked),
            *_unread_twins(case.snapshot),
            *opinion.unchecked,
        ),
        residual=residual(observed, expectation.parameters, findings),
        **case.shared,
    )


def _rules(
    found: Contents, dtype: str | None, reconciled: Reconciled, walked: Walk, expected: int
) -> Iterator[Finding]:
    """`expected`: the parameters that the config implies."""
    dtypes = frozenset(walked.by_dtype())
    if found.variant and (own := dtype_of(found.variant)):
        yield from dtype_rule(reconciled, own, dtypes, by=f"the variant {found.variant}")
    else:
        yield from dtype_rule(reconciled, dtype, dtypes)
    if found.index is None:
        return
    yield from index_rules(found.index, found.tensors, found.opened, walked.total, reconciled)
    if found.opened.issuperset(found.index.shards):
        return
    if reconciled.packed:
        yield from packed_size_rule(found.index, expected)
    else:
        yield from implied_rules(found.index, reconciled, dtype)


def contradictions(case: Case) -> Iterator[Finding]:
    for reason in case.contradictions:
        yield BadConfig(file=where(case.snapshot), reason=reason)


def _other_model(
    snapshot: Snapshot, reconciled: Reconciled, expectation: Expectation
) -> Iterator[Finding]:
    if snapshot.config is not None:
        yield from other_model_rule(reconciled, expectation, snapshot.config.name)


def _unchecked(found: Contents, dtype: str | None, unpacked: Unpacked) -> Iterator[str]:
    """What this audit did not compare, so that nobody takes it for compared."""
    yield "values: only headers are read, no weight is"
    if found.names_only:
        yield "shapes and dtypes: shards are not here, their names come from the index"
        if found.index is not None and found.index.total_size is None:
            yield "the total size: the index does not say it"
        elif unpacked is not PLAIN:
            yield "the total size: what packed weights take, only their headers tell"
    if dtype is None:
        yield "the dtype: the config declares none"
    if found.unread:
        yield f"{found.unread_files} weight file(s) that could not be read"


def _unread_twins(snapshot: Snapshot) -> Iterator[str]:
    if files := unread_twins(snapshot):
        yield f"{listed(files)}: not compared with the audited files (audit with --twins to do so)"


# --- there is nothing to compare ---------------------------------------------------------------


def no_weights(case: Case, expectation: Expectation, detail: str, *findings: Finding) -> Unaudited:
    """A config alone: what it implies is known, and nothing was audited."""
    case.know(modules=expected_only(expectation, depth=case.depth))
    found = in_order((*contradictions(case), *findings))
    return Unaudited(reason=Reason.NO_WEIGHTS, detail=detail, findings=found, **case.shared)


def without_expectation(case: Case, *bad: BadConfig) -> Report:
    """The config is broken: what is stored is tallied, and compared with nothing."""
    _know_stored(case)
    unread = (item.finding(file=item.file, reason=item.reason) for item in case.found.unread)
    twins = twin_findings(case.snapshot, case.found)
    findings = (*bad, *case.found.findings, *unread, *twins, *besides(case.snapshot))
    stand, left_out = split(findings, case.ignore)
    return Report(
        findings=in_order(stand),
        ignored=in_order(left_out),
        unchecked=("everything: the config does not say what to expect",),
        residual=None,
        **case.shared,
    )


def unaudited(case: Case, reason: Reason, detail: str) -> Unaudited:
    """Nothing can be expected; what is stored is tallied all the same."""
    _know_stored(case)
    unread = (item.finding(file=item.file, reason=item.reason) for item in case.found.unread)
    twins = twin_findings(case.snapshot, case.found)
    bad = contradictions(case)
    findings = in_order((*bad, *case.found.findings, *unread, *twins, *besides(case.snapshot)))
    return Unaudited(reason=reason, detail=detail, findings=findings, **case.shared)


def _know_stored(case: Case) -> None:
    if case.found.empty:
        return
    counted = ((tensor, learned(tensor), 0) for tensor in case.found.tensors)
    walked = walk(counted, depth=case.depth)
    shapes = not case.found.names_only
    case.know(
        observed=observed_side(walked, case.snapshot, shapes=shapes),
        modules=stored_only(walked, shapes=shapes),
    )
