"""The pipeline: source -> snapshot -> stored tensors, config -> expected ones, both -> report."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from auditor.analytic import Config, Expectation, read_config
from auditor.analytic.choose import Choice, Refusal
from auditor.containers.words import named
from auditor.downloader import config_alone, fetch
from auditor.downloader.select import beside
from auditor.downloader.snapshot import Snapshot
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.expecting import (
    Implied,
    Opinion,
    implied,
    require,
    require_oracle,
    second_opinion,
)
from auditor.layouts import known, learned, unpack
from auditor.layouts.declared import declaration
from auditor.layouts.packing import PLAIN, Declared, Unpacked
from auditor.reconciler.claims import drafting_notes, listed_size_rule, other_model_rule
from auditor.reconciler.contents import Contents, contents
from auditor.reconciler.findings import BadConfig, Beside, Finding
from auditor.reconciler.ignore import Ignore, split
from auditor.reconciler.matching import shapes_of
from auditor.reconciler.modules import compared, expected_only, stored_only
from auditor.reconciler.reconcile import Reconciled, reconcile
from auditor.reconciler.rules import dtype_rule, implied_note, implied_rules, index_rules
from auditor.report import Report, Unaudited, expected_side, in_order, observed_side, residual
from auditor.walker import Walk, walk


def audit(  # noqa: PLR0913 - one keyword for each choice a caller has
    model: str,
    *,
    target: str | None = None,
    source: str = "hub",
    token: str | None = None,
    depth: int | None = None,
    ignore: tuple[Ignore, ...] = (),
    oracle: bool = False,
    say: Callable[[str], None] = lambda _line: None,
) -> Report | Unaudited:
    """Account for every tensor of a checkpoint, from its config and headers alone.

    `model` is a Hub id (with `@revision`), a folder, a file, or a snapshot; `target` the class to
    audit for, config.architectures[0] if None; `source` one of "auto", "hub", "cache" and
    "bundled" (a local path is read where it is); `token` a Hugging Face access token, the stored
    one if None; `depth` how deep the report's module rows go, all the way if None; `oracle` asks
    transformers for a second opinion of the closed form; `say` gets a line where the work waits or
    falls back.

    Counts are in elements and parameters, sizes in bytes. Raises UsageError for a model or a
    class that cannot be asked for; all else, a network that fails included, is an outcome.
    """
    if target is not None:
        require(target)
    if oracle:
        require_oracle()
    try:
        snapshot = fetch(model, source=source, token=token, say=say)
    except SourceError as error:
        return Unaudited(requested=model, target=target, reason=error.reason, detail=str(error))
    return examine(
        snapshot, requested=model, target=target, depth=depth, ignore=ignore, oracle=oracle
    )


def explain(
    model: str,
    *,
    target: str | None = None,
    source: str = "hub",
    token: str | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> Report | Unaudited:
    """What the config of a checkpoint implies, whatever its weights: they are not looked at.

    The arguments are those of `audit`. The outcome is Unaudited(no-weights), with `expected` and
    `modules` known; a Report where the config is broken; otherwise Unaudited for another reason.
    """
    if target is not None:
        require(target)
    try:
        snapshot = fetch(model, source=source, token=token, say=say, choose=config_alone)
    except SourceError as error:
        return Unaudited(requested=model, target=target, reason=error.reason, detail=str(error))
    alone = replace(snapshot, heads=(), index=None, unopened=())
    return examine(alone, requested=model, target=target)


class _Case(NamedTuple):
    """One snapshot under examination."""

    snapshot: Snapshot
    found: Contents
    depth: int | None
    ignore: tuple[Ignore, ...]
    shared: dict[str, Any]  # fields of the outcome that are known so far

    def know(self, **fields: Any) -> None:
        self.shared.update(fields)

    def know_choice(self, choice: Choice, said: tuple[str, ...]) -> None:
        notes = (*said, *choice.notes)
        self.know(target=choice.target, model_type=choice.model_type, notes=notes)


def examine(  # noqa: PLR0913 - as above
    snapshot: Snapshot,
    *,
    requested: str,
    target: str | None = None,
    depth: int | None = None,
    ignore: tuple[Ignore, ...] = (),
    oracle: bool = False,
) -> Report | Unaudited:
    """Audit what was fetched; a function of the snapshot alone, and of transformers if asked."""
    case = _Case(snapshot, contents(snapshot), depth, ignore, {})
    case.know(
        requested=requested,
        model=snapshot.model,
        commit=snapshot.commit,
        source=snapshot.source,
        origin=snapshot.origin,
        fetched=snapshot.fetched,
        target=target,
    )
    if snapshot.config is None:
        detail = f"{snapshot.model} has no config.json: nothing says what its tensors should be"
        return _unaudited(case, Reason.NO_CONFIG, detail)
    try:
        config = read_config(snapshot.config.name, snapshot.config.content)
        said = () if case.found.unread else tuple(drafting_notes(config, case.found.tensors))
        case.know(declared=config.architectures, model_type=config.model_type, notes=said)
        chosen = partial(case.know_choice, said=said)
        found = implied(config, target, chosen, depth=depth)
        if isinstance(found, Refusal):
            return _unaudited(case, found.reason, found.detail)
        expectation, family = found
        opinion = second_opinion(config, expectation) if oracle else Opinion()
        dtype = config.dtype
        declared = declaration(config.values, {})
    except CheckpointError as error:
        bad = BadConfig(file=snapshot.config.name, reason=str(error))
        return _without_expectation(case, bad)
    case.know(expected=expected_side(expectation))
    if case.found.empty:
        detail = f"{snapshot.model} is a config alone: there are no weights to compare it with"
        case.know(modules=expected_only(expectation, depth=depth))
        sizes = () if declared else listed_size_rule(snapshot.files, expectation, dtype)
        findings = in_order((*opinion.findings, *sizes))
        return Unaudited(reason=Reason.NO_WEIGHTS, detail=detail, findings=findings, **case.shared)
    return _compared(case, config, declared, Implied(expectation, family), opinion)


def _compared(
    case: _Case, config: Config, declared: Declared | None, implied: Implied, opinion: Opinion
) -> Report | Unaudited:
    if declared is not None and not known(declared.method):
        detail = f"the weights are packed by {named(declared.method)}: its layout is not known here"
        return _unaudited(case, Reason.UNKNOWN_LAYOUT, detail)
    try:
        unpacked = unpack(case.found.tensors, declared, shapes_of(implied.expectation))
    except CheckpointError as error:
        where = declared.where if declared else "config.json"
        return _without_expectation(case, BadConfig(file=where, reason=str(error)))
    return _report(case, config.dtype, implied, unpacked, opinion)


def _report(
    case: _Case, dtype: str | None, implied: Implied, unpacked: Unpacked, opinion: Opinion
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
    )
    walked = walk(reconciled.counted, depth=case.depth)
    layout = None if unpacked is PLAIN else unpacked.layout
    observed = observed_side(walked, case.snapshot, shapes=shapes, layout=layout)
    findings = (
        *found.findings,
        *reconciled.findings,
        *opinion.findings,
        *_rules(found, dtype, reconciled, walked),
        *_other_model(case.snapshot, reconciled, expectation),
        *_beside(case.snapshot),
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
        unchecked=(*_unchecked(found, dtype, unpacked), *opinion.unchecked),
        residual=residual(observed, expectation.parameters, findings),
        **case.shared,
    )


def _rules(
    found: Contents, dtype: str | None, reconciled: Reconciled, walked: Walk
) -> Iterator[Finding]:
    yield from dtype_rule(reconciled, dtype, frozenset(walked.by_dtype()))
    if found.index is None:
        return
    yield from index_rules(found.index, found.tensors, found.opened, walked.total, reconciled)
    if not found.opened.issuperset(found.index.shards) and not reconciled.packed:
        yield from implied_rules(found.index, reconciled, dtype)


def _other_model(
    snapshot: Snapshot, reconciled: Reconciled, expectation: Expectation
) -> Iterator[Finding]:
    if snapshot.config is not None:
        yield from other_model_rule(reconciled, expectation, snapshot.config.name)


def _beside(snapshot: Snapshot) -> Iterator[Finding]:
    files = beside(snapshot)
    if files:
        reason = "a weight file that is no part of the audited set; it was not opened"
        yield Beside(files=files, reason=reason)


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


def _without_expectation(case: _Case, bad: BadConfig) -> Report:
    """The config is broken: what is stored is tallied, and compared with nothing."""
    _know_stored(case)
    unread = (item.finding(file=item.file, reason=item.reason) for item in case.found.unread)
    findings = (bad, *case.found.findings, *unread, *_beside(case.snapshot))
    stand, left_out = split(findings, case.ignore)
    return Report(
        findings=in_order(stand),
        ignored=in_order(left_out),
        unchecked=("everything: the config does not say what to expect",),
        residual=None,
        **case.shared,
    )


def _unaudited(case: _Case, reason: Reason, detail: str) -> Unaudited:
    """Nothing can be expected; what is stored is tallied all the same."""
    _know_stored(case)
    unread = (item.finding(file=item.file, reason=item.reason) for item in case.found.unread)
    findings = in_order((*case.found.findings, *unread, *_beside(case.snapshot)))
    return Unaudited(reason=reason, detail=detail, findings=findings, **case.shared)


def _know_stored(case: _Case) -> None:
    if case.found.empty:
        return
    counted = ((tensor, learned(tensor), 0) for tensor in case.found.tensors)
    walked = walk(counted, depth=case.depth)
    shapes = not case.found.names_only
    case.know(
        observed=observed_side(walked, case.snapshot, shapes=shapes, layout=None),
        modules=stored_only(walked, shapes=shapes),
    )
