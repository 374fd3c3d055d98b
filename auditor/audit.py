"""The pipeline: source -> snapshot -> stored tensors, config -> expected ones, both -> report."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from auditor.analytic import Config, Expectation
from auditor.analytic.choose import Choice, Refusal
from auditor.analytic.kv_cache import kv_cache
from auditor.containers.words import named
from auditor.downloader import config_alone, fetch
from auditor.downloader.select import ADAPTER_CONFIG, select, with_twins
from auditor.downloader.selection import Chooser
from auditor.downloader.snapshot import Snapshot
from auditor.downloader.standard import checked_variant, dtype_of
from auditor.downloader.words import listed
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.expecting import (
    Implied,
    Opinion,
    implied,
    of_diffusers,
    of_module,
    require,
    require_oracle,
    second_opinion,
)
from auditor.layouts import known, learned, unpack
from auditor.layouts.declared import declaration
from auditor.layouts.fused import separated
from auditor.layouts.packing import PLAIN, Declared, Unpacked
from auditor.reconciler.besides import besides
from auditor.reconciler.claims import drafting_notes, listed_size_rule, other_model_rule
from auditor.reconciler.contents import Contents, contents
from auditor.reconciler.findings import BadConfig, Finding
from auditor.reconciler.ignore import Ignore, split
from auditor.reconciler.matching import shapes_of
from auditor.reconciler.modules import compared, expected_only, stored_only
from auditor.reconciler.reconcile import Reconciled, reconcile
from auditor.reconciler.rules import (
    dtype_rule,
    implied_note,
    implied_rules,
    index_rules,
    packed_size_rule,
)
from auditor.reconciler.said import is_gguf, said, where
from auditor.reconciler.twins import twin_findings, unread_twins
from auditor.reconciler.weights import weights
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
    twins: bool = False,
    variant: str | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> Report | Unaudited:
    """Account for every tensor of a checkpoint, from its config and headers alone.

    `model` is a Hub id (with `@revision`), a folder, a file, or a snapshot; `target` the class to
    audit for, config.architectures[0] if None; `source` one of "auto", "hub", "cache" and
    "bundled" (a local path is read where it is); `token` a Hugging Face access token, the stored
    one if None; `depth` how deep the report's module rows go, all the way if None; `oracle` asks
    transformers for a second opinion of the closed form; `twins` reads the torch files beside
    safetensors of the Hub too, as is always done in a folder; `variant` ("fp16") the weights that
    from_pretrained loads where it is given one; `say` gets a line where the work waits or falls
    back.

    A repository of several models has an outcome with `parts`, one for each of them, whose counts
    are their sums. Counts are in elements and parameters, sizes in bytes. Raises UsageError for a
    model or a class that cannot be asked for; all else, a network that fails included, is an
    outcome.
    """
    if target is not None:
        require(target)
    if oracle:
        require_oracle()
    choose: Chooser = select
    if variant is not None:
        choose = partial(select, variant=checked_variant(variant))
    if twins:
        choose = partial(with_twins, choose=choose)
    try:
        snapshot = fetch(model, source=source, token=token, say=say, choose=choose)
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
    alone = replace(snapshot, heads=(), index=None, unopened=(), manifest=None, components=())
    return examine(alone, requested=model, target=target)


class _Case(NamedTuple):
    """One snapshot under examination."""

    snapshot: Snapshot
    found: Contents
    depth: int | None
    ignore: tuple[Ignore, ...]
    shared: dict[str, Any]  # fields of the outcome that are known so far
    contradictions: list[str]  # of the config with itself, where one side could be taken

    def know(self, **fields: Any) -> None:
        self.shared.update(fields)

    def knowing(self, findings: tuple[Finding, ...]) -> "_Case":
        """The case with more that was found of its files."""
        found = replace(self.found, findings=(*self.found.findings, *findings))
        return self._replace(found=found) if findings else self

    def know_choice(self, choice: Choice, said: tuple[str, ...]) -> None:
        notes = (*said, *choice.notes)
        self.know(target=choice.target, model_type=choice.model_type, notes=notes)
        if choice.contradiction:
            self.contradictions.append(choice.contradiction)


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
    one = partial(_examined, requested=requested, depth=depth, ignore=ignore, oracle=oracle)
    if not (snapshot.manifest or snapshot.components):
        return one(snapshot, target=target)
    from auditor import whole  # noqa: PLC0415 - most repositories hold one model

    return whole.examine(snapshot, one, requested=requested, target=target, ignore=ignore)


def _examined(  # noqa: PLR0911, PLR0913 - one for each way that it may end; as above
    snapshot: Snapshot,
    *,
    requested: str,
    target: str | None = None,
    module: str | None = None,
    depth: int | None = None,
    ignore: tuple[Ignore, ...] = (),
    oracle: bool = False,
) -> Report | Unaudited:
    """The same of one model; `module` is its class where it is one of sentence-transformers."""
    case = _Case(snapshot, contents(snapshot), depth, ignore, {}, [])
    case.know(
        requested=requested,
        model=snapshot.model,
        commit=snapshot.commit,
        source=snapshot.source,
        origin=snapshot.origin,
        fetched=snapshot.fetched,
        target=target or module,
        notes=case.found.notes,
    )
    if _is_adapter(snapshot):
        return _adapter(case, target)
    try:
        says = said(snapshot)
        if says is None:
            return _unsaid(case)
        config, case = says.config, case.knowing(says.findings)
        drafts = () if case.found.unread else drafting_notes(config, case.found.tensors)
        notes = (*case.found.notes, *says.notes, *drafts)
        case.know(declared=config.architectures, model_type=config.model_type, notes=notes)
        if module:
            found = of_module(config, module)
        else:
            chosen = partial(case.know_choice, said=notes)
            found = _of_diffusers(case, config) or implied(
                config, target or says.target, chosen, depth=depth
            )
        if isinstance(found, Refusal):
            return _unaudited(case, found.reason, found.detail)
        expectation, family = found
        opinion = second_opinion(config, expectation) if oracle and not module else Opinion()
        dtype = config.dtype
        files = {snapshot.packing.name: snapshot.packing.content} if snapshot.packing else {}
        declared = says.declared or declaration(config.values, files)
    except CheckpointError as error:
        bad = BadConfig(file=where(snapshot), reason=str(error))
        return _without_expectation(case, bad)
    except SourceError as error:
        return _unaudited(case, error.reason, str(error))
    case.know(expected=expected_side(expectation), kv_cache=kv_cache(expectation, config.values))
    if case.found.empty:
        detail = f"{snapshot.model} is a config alone: there are no weights to compare it with"
        case.know(modules=expected_only(expectation, depth=depth))
        sizes = () if declared else listed_size_rule(snapshot.files, expectation, dtype)
        findings = in_order((*_contradictions(case), *opinion.findings, *sizes))
        return Unaudited(reason=Reason.NO_WEIGHTS, detail=detail, findings=findings, **case.shared)
    return _compared(case, config, declared, Implied(expectation, family), opinion)


def _of_diffusers(case: _Case, config: Config) -> Refusal | None:
    found = of_diffusers(config)
    if found is not None:
        case.know(target=str(config.values["_class_name"]))
    return found


def _is_adapter(snapshot: Snapshot) -> bool:
    return snapshot.config is not None and snapshot.config.name == ADAPTER_CONFIG


def _adapter(case: _Case, target: str | None) -> Report | Unaudited:
    """The same of an adapter: what it should hold follows from its config and its base's."""
    from auditor.adapters import adapted  # noqa: PLC0415 - most audits are of whole models

    try:
        found = adapted(case.snapshot, case.found.tensors, target)
    except CheckpointError as error:
        return _without_expectation(case, BadConfig(file=where(case.snapshot), reason=str(error)))
    if isinstance(found, Refusal):
        return _unaudited(case, found.reason, found.detail)
    expectation = found.implied.expectation
    case.know(target=expectation.target, model_type=expectation.model_type)
    case.know(notes=(*case.found.notes, *found.notes), expected=expected_side(expectation))
    if case.found.empty:
        detail = f"{case.snapshot.model} is an adapter's config alone: there are no weights"
        case.know(modules=expected_only(expectation, depth=case.depth))
        return Unaudited(reason=Reason.NO_WEIGHTS, detail=detail, **case.shared)
    return _report(case, None, found.implied, PLAIN, Opinion(unchecked=found.unchecked))


def _compared(
    case: _Case, config: Config, declared: Declared | None, implied: Implied, opinion: Opinion
) -> Report | Unaudited:
    if declared is not None and not known(declared.method):
        detail = f"the weights are packed by {named(declared.method)}: its layout is not known here"
        return _unaudited(case, Reason.UNKNOWN_LAYOUT, detail)
    tensors, expected = case.found.tensors, implied.expectation
    shapes = shapes_of(expected)
    try:
        unpacked = unpack(tensors, declared, shapes)
        if len(tensors) < len(expected.tensors):  # else there is no use in looking at each name
            unpacked = separated(unpacked, tensors, shapes)
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
        shared=found.shared,
    )
    walked = walk(reconciled.counted, depth=case.depth)
    layout = None if unpacked is PLAIN else unpacked.layout
    held = weights(reconciled, walked) if shapes else ()
    observed = observed_side(walked, case.snapshot, shapes=shapes, layout=layout, weights=held)
    findings = (
        *found.findings,
        *_contradictions(case),
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


def _contradictions(case: _Case) -> Iterator[Finding]:
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


def _unsaid(case: _Case) -> Report | Unaudited:
    """No file says what to expect, or the one that would is broken."""
    if is_gguf(case.snapshot):
        return _without_expectation(case)
    model = case.snapshot.model
    detail = f"{model} has no config.json: nothing says what its tensors should be"
    return _unaudited(case, Reason.NO_CONFIG, detail)


def _without_expectation(case: _Case, *bad: BadConfig) -> Report:
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


def _unaudited(case: _Case, reason: Reason, detail: str) -> Unaudited:
    """Nothing can be expected; what is stored is tallied all the same."""
    _know_stored(case)
    unread = (item.finding(file=item.file, reason=item.reason) for item in case.found.unread)
    twins = twin_findings(case.snapshot, case.found)
    findings = in_order((*case.found.findings, *unread, *twins, *besides(case.snapshot)))
    return Unaudited(reason=reason, detail=detail, findings=findings, **case.shared)


def _know_stored(case: _Case) -> None:
    if case.found.empty:
        return
    counted = ((tensor, learned(tensor), 0) for tensor in case.found.tensors)
    walked = walk(counted, depth=case.depth)
    shapes = not case.found.names_only
    case.know(
        observed=observed_side(walked, case.snapshot, shapes=shapes),
        modules=stored_only(walked, shapes=shapes),
    )
