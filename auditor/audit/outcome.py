"""A model under audit, and its possible outcomes."""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from auditor.analytic import Expectation
from auditor.analytic.kept_in_f32 import kept_in_f32
from auditor.analytic.kv_cache import kv_cache
from auditor.analytic.target import TargetChoice
from auditor.audit.declaration import where
from auditor.audit.expected import Implied, Opinion
from auditor.audit.options import Options
from auditor.checkpoint.filenames import dtype_of
from auditor.checkpoint.selecting import ADAPTER_CONFIG
from auditor.checkpoint.snapshot import Snapshot
from auditor.claims.verdict import PublishedCount
from auditor.errors import Reason
from auditor.findings import (
    BadConfig,
    ClaimedSize,
    ConfigContradiction,
    Finding,
    HubCount,
    MissingComponent,
)
from auditor.findings.ignore import split
from auditor.layouts.packing import PLAIN, ReadAndHidden, Unpacked, WrittenTensor, split_off_unread
from auditor.messages import listed
from auditor.reconciler.contents import Contents, contents
from auditor.reconciler.index.rules import by_files, index_judgement
from auditor.reconciler.loading.predict import predict
from auditor.reconciler.matching import Fate
from auditor.reconciler.other_model import dtype_rule, other_model_rule, other_names_note
from auditor.reconciler.other_weights import (
    embedded_adapter,
    other_weights,
    torch_copy_findings,
    uncompared_torch_copies,
    unread_pickles,
)
from auditor.reconciler.reconcile import Reconciled, reconcile
from auditor.reconciler.repository_rules.repository_case import value_text
from auditor.reconciler.rows import (
    ExpectedRows,
    compared_rows,
    stored_rows,
    weights_by_dtype,
)
from auditor.reconciler.tensor_rows import TensorTable
from auditor.report import (
    Observed,
    Outcome,
    Report,
    Unaudited,
    expected_side,
    in_order,
    observed_side,
    residual,
)
from auditor.tensors import Depth, learned
from auditor.walker import Shallow, Walk, counted_once, depth_within, walk

# Module rows. DeepSeek-V3 has 47,000 and Kimi K2 93,000; a row takes a kilobyte while it is made.
# What nothing expects is named in findings, and has rows for its outline.
MOST_MODULES = 120_000
MOST_STRANGE_MODULES = 10_000


class PackedWeights(NamedTuple):
    """The packing of the weights."""

    unpacked: ReadAndHidden
    written: Mapping[str, WrittenTensor]  # what the layout stores, under names without a header
    method: str | None = None  # by what they are packed; None: what is stored is the model's
    holders: frozenset[str] = frozenset()  # names of tensors that contain several, without a method


UNPACKED = PackedWeights(split_off_unread(PLAIN, ()), MappingProxyType({}))


class ModelAudit(Struct, kw_only=True):
    """A snapshot under audit; its outcome is completed step by step."""

    snapshot: Snapshot
    options: Options
    contents: Contents
    outcome: Outcome
    contradictions: tuple[str, ...] = ()  # of the config with itself; its shapes are known
    unread_companions: tuple[str, ...] = ()  # what was not read of the files beside the weights
    wide_names: re.Pattern[str] = kept_in_f32({})  # parameters that may be stored in 32 bits

    @property
    def depth(self) -> Depth | None:
        """The depth of module rows."""
        depth = self.options.depth
        return Depth(depth) if isinstance(depth, int) else depth

    def add_findings(self, findings: tuple[Finding, ...]) -> None:
        """Add findings about the files."""
        self.contents = replace(self.contents, findings=(*self.contents.findings, *findings))

    def add_notes(self, *notes: str) -> None:
        self.outcome = replace(self.outcome, notes=(*self.outcome.notes, *notes))

    def set_choice(self, choice: TargetChoice, notes: tuple[str, ...]) -> None:
        """Set the class that the audit is for; `notes` are those before a class was chosen.

        The oracle's choice replaces that of the closed forms.
        """
        self.outcome = replace(
            self.outcome,
            target=choice.target,
            model_type=choice.model_type,
            notes=(*notes, *choice.notes),
        )
        if choice.contradiction:
            self.contradictions += (choice.contradiction,)
        if choice.namesake:
            self.add_findings((_of_two_types(self.snapshot, choice),))

    def set_expected(self, expectation: Expectation, config: Mapping[str, Any]) -> None:
        cache = kv_cache(expectation, config)
        self.outcome = replace(self.outcome, expected=expected_side(expectation), kv_cache=cache)
        self.wide_names = kept_in_f32(config)


def _of_two_types(snapshot: Snapshot, choice: TargetChoice) -> ConfigContradiction:
    file, values = where(snapshot), choice.around.config.values
    keys = ("architectures", "model_type")
    return ConfigContradiction(
        says=tuple((file, key, value_text(values.get(key))) for key in keys),
        reason=choice.namesake or "",
        fix=f'set architectures to ["{choice.declared}"], or model_type to that of the class',
    )


def begin_audit(snapshot: Snapshot, options: Options, target: str | None) -> ModelAudit:
    """Begin the audit of a snapshot, before its config is read."""
    without = replace(snapshot, headers=(), index=None, unopened=())
    stored = contents(snapshot if options.weights else without)
    begun = Outcome.begin(snapshot, options.requested)
    outcome = replace(begun, target=target, notes=stored.notes)
    return ModelAudit(snapshot=snapshot, options=options, contents=stored, outcome=outcome)


# --- compared outcomes ------------------------------------------------------------------------


def compared_outcome(
    case: ModelAudit, dtype: str | None, implied: Implied, packing: PackedWeights, opinion: Opinion
) -> Report:
    """Compare what is stored with what the config implies; `dtype` is the declared one."""
    contents, snapshot, expectation = case.contents, case.snapshot, implied.expectation
    shapes, unpacked = not contents.names_only, packing.unpacked.read
    # Give each tensor its fate.
    reconciled = reconcile(contents, expectation, implied.family, packing.unpacked)
    # Sum up the stored tensors; list modules that nothing expects in outline if there are many.
    foreign = (Fate.UNEXPECTED | Fate.BUFFER).value
    names = (one.tensor.name for one in reconciled.unexpected if one.fate & foreign)
    outline = _outline(names, foreign, MOST_STRANGE_MODULES)
    walked = walk(reconciled.counted, depth=case.depth, shallow=outline.shallow)
    observed = observed_side(
        walked,
        snapshot,
        shapes=shapes,
        layout=None if unpacked is PLAIN else unpacked.layout,
        weights=weights_by_dtype(reconciled, walked) if shapes else (),
    )
    # Check the index, the published sizes, and whether the files belong to another model.
    index = index_judgement(
        contents,
        snapshot,
        walked.total,
        reconciled,
        written=packing.written,
        declared=dtype,
        wide_names=case.wide_names,
        parameters=expectation.parameters,
    )
    published = _published(case, expectation, observed)
    total = contents.index.total_size if contents.index else None
    other_names = other_names_note(reconciled, expectation, total)
    adapter = embedded_adapter(snapshot)
    # Collect the findings.
    findings = (
        *contents.findings,
        *((adapter,) if isinstance(adapter, MissingComponent) else ()),
        *contradictions(case),
        *reconciled.findings,
        *opinion.findings,
        *_dtypes(case, dtype, reconciled, walked),
        *index.findings,
        *_other_model(case, reconciled, expectation, total),
        *torch_copy_findings(snapshot, contents),
        *other_weights(snapshot),
        *refuted_claims(published),
    )
    reported, ignored = split(findings, case.options.ignore)
    # Predict the load report.
    loads = predict(contents, expectation, reconciled, findings, packing.method)
    # Put the report together.
    notes = (
        *case.outcome.notes,
        *((adapter,) if isinstance(adapter, str) else ()),
        *outline.notes,
        *((other_names,) if other_names else ()),
        *index.notes,
    )
    outcome = replace(
        case.outcome,
        observed=observed,
        claims=published,
        load_report=loads.report,
        in_memory=loads.in_memory,
        modules=compared_rows(reconciled, expectation, walked, depth=case.depth, shapes=shapes),
        findings=in_order(reported),
        ignored=in_order(ignored),
        tensors=TensorTable.compared(reconciled, expectation),
        notes=notes,
        unchecked=(
            *_unchecked(contents, dtype, unpacked, index.unchecked),
            *_torch_copies(snapshot, contents),
            *opinion.unchecked,
            *loads.unchecked,
            *case.unread_companions,
        ),
    )
    return outcome.as_report(residual(observed, expectation.parameters, findings))


class _Outline(NamedTuple):
    """The fates whose modules are listed down to some depth only, and a note about it."""

    shallow: Shallow | None = None  # None if all modules are listed
    notes: tuple[str, ...] = ()


def _outline(names: Iterable[str], fates: int | None, most: int) -> _Outline:
    """Limit the depth of modules so that those of the names are at most `most`."""
    depth = depth_within(names, most)
    if depth is None:
        return _Outline()
    whose = "of tensors that nothing expects " if fates else ""
    note = f"modules {whose}are listed down to depth {depth}: below, there are more than {most:,}"
    return _Outline(Shallow(fates, depth), (note,))


def _published(
    case: ModelAudit, expectation: Expectation, observed: Observed
) -> tuple[PublishedCount, ...]:
    """Return the published counts; an adapter and a folder have another model's name."""
    contents, snapshot = case.contents, case.snapshot
    adapter = snapshot.config is not None and snapshot.config.name == ADAPTER_CONFIG
    if adapter or any("/" in head.name for head in snapshot.headers):
        return ()
    if not (snapshot.published or any(map(str.isdigit, snapshot.model))):
        return ()
    from auditor.audit.published_claims import published_counts  # noqa: PLC0415 - 10 ms, for some

    is_complete = not (contents.unread or contents.names_only)
    return published_counts(snapshot, expectation, observed, is_complete=is_complete)


def refuted_claims(counts: tuple[PublishedCount, ...]) -> Iterator[HubCount | ClaimedSize]:
    """Yield a finding for each refuted count: programs read the Hub's, people read the others.

    The Hub's usual count of packed words is no fault of an upload, so it does not alarm.
    """
    for count in counts:
        if count.verdict == "refuted":
            kind = HubCount if count.where == "hub" and not count.usual else ClaimedSize
            yield kind(
                where=count.key,
                text=count.text,
                claim=count.claim,
                actual=count.actual,
                reason=count.reason,
            )


def _dtypes(
    case: ModelAudit, dtype: str | None, reconciled: Reconciled, walked: Walk
) -> Iterator[Finding]:
    """Yield findings about dtypes other than the declared dtype or that of the variant's name."""
    dtypes = frozenset(walked.by_dtype())
    variant, wide_names = case.contents.variant, case.wide_names
    if variant and (own := dtype_of(variant)):
        yield from dtype_rule(reconciled, own, dtypes, wide_names, by=f"the variant {variant}")
    else:
        yield from dtype_rule(reconciled, dtype, dtypes, wide_names)


def contradictions(case: ModelAudit) -> Iterator[Finding]:
    for reason in case.contradictions:
        yield BadConfig(file=where(case.snapshot), reason=reason)


def _other_model(
    case: ModelAudit, reconciled: Reconciled, expectation: Expectation, total: float | None
) -> Iterator[Finding]:
    if case.snapshot.config is not None:
        yield from other_model_rule(reconciled, expectation, case.snapshot.config.name, total)


def _unchecked(
    contents: Contents, dtype: str | None, unpacked: Unpacked, of_index: tuple[str, ...]
) -> Iterator[str]:
    """Yield a line for each thing that this audit did not compare."""
    yield "values: only headers are read, no weight is"
    if contents.names_only:
        yield "shapes and dtypes: shards are not here, their names come from the index"
    yield from of_index
    if dtype is None:
        yield "the dtype: the config declares none for the whole model"
    if contents.unread:
        yield f"{contents.unread_files} weight file(s) that could not be read"
    if contents.holds_unknown and unpacked is not PLAIN:
        yield "what packed tensors lack: a file that could not be read may hold it"


def _torch_copies(snapshot: Snapshot, contents: Contents) -> Iterator[str]:
    yield from unread_pickles(snapshot)
    if files := uncompared_torch_copies(snapshot, contents):
        yield f"{listed(files)}: not compared, for the audited files are not all there"


# --- there is nothing to compare ---------------------------------------------------------------


def no_weights(
    case: ModelAudit, expectation: Expectation, detail: str, *findings: Finding
) -> Unaudited:
    """Return the outcome of a config without weights, with the expected side."""
    modules = ExpectedRows(expectation, depth=case.depth)
    outcome = replace(
        _with_findings(case, *contradictions(case), *findings),
        modules=modules,
        tensors=TensorTable.of_expected(expectation),
    )
    return outcome.as_unaudited(Reason.NO_WEIGHTS, detail)


def without_expectation(case: ModelAudit, *bad: BadConfig) -> Report:
    """Return the outcome for a broken config: stored tensors are counted and not compared."""
    unchecked = ("everything: the config does not say what to expect",)
    return replace(_tallied(case, *bad), unchecked=unchecked).as_report(None)


def unaudited_outcome(case: ModelAudit, reason: Reason, detail: str) -> Unaudited:
    """Return an unaudited outcome, with counts of the stored tensors."""
    return _tallied(case).as_unaudited(reason, detail)


def _with_findings(case: ModelAudit, *findings: Finding) -> Outcome:
    reported, ignored = split(findings, case.options.ignore)
    return replace(case.outcome, findings=in_order(reported), ignored=in_order(ignored))


def _of_files(case: ModelAudit, walked: Walk) -> Iterator[Finding]:
    """Yield findings that the files show by themselves, whatever the architecture."""
    contents, snapshot = case.contents, case.snapshot
    yield from contents.findings
    yield from (item.finding(file=item.file, reason=item.reason) for item in contents.unread)
    yield from by_files(contents, snapshot, walked.total)
    yield from torch_copy_findings(snapshot, contents)
    yield from other_weights(snapshot)


def _tallied(case: ModelAudit, *bad: BadConfig) -> Outcome:
    """Sum up the stored tensors, as far as headers show what is learned; check the files alone."""
    contents = case.contents
    outline = _outline((tensor.name for tensor in contents.tensors), None, MOST_MODULES)
    counted = counted_once(
        tuple((tensor, learned(tensor), 0) for tensor in contents.tensors), contents.shared
    )
    walked = walk(counted, depth=case.depth, shallow=outline.shallow)
    outcome = _with_findings(case, *bad, *contradictions(case), *_of_files(case, walked))
    outcome = replace(outcome, notes=(*outcome.notes, *outline.notes))
    if contents.empty:
        return outcome
    shapes = not contents.names_only
    return replace(
        outcome,
        observed=observed_side(walked, case.snapshot, shapes=shapes),
        modules=stored_rows(walked, shapes=shapes),
        tensors=TensorTable.of_stored(contents.tensors, contents.shared),
    )
