"""One model under audit, and the outcomes in which that ends."""

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
from auditor.reconciler.unexpected import with_unused_heads
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
    """How the weights are packed."""

    apart: ReadAndHidden
    written: Mapping[str, WrittenTensor]  # what the layout stores, under names without a header
    method: str | None = None  # by what they are packed; None: what is stored is the model's
    holders: frozenset[str] = frozenset()  # names of tensors that contain several, without a method


UNPACKED = PackedWeights(split_off_unread(PLAIN, ()), MappingProxyType({}))


class ModelAudit(Struct, kw_only=True):
    """One snapshot under audit: what is known of it grows until it is an outcome."""

    snapshot: Snapshot
    options: Options
    found: Contents
    known: Outcome
    contradictions: tuple[str, ...] = ()  # of the config with itself; its shapes are known
    beside: tuple[str, ...] = ()  # what was not read of the files beside the weights
    is_by_architectures: bool = False  # whether nothing but `architectures` chooses the class
    wide_names: re.Pattern[str] = kept_in_f32({})  # parameters that may be stored in 32 bits

    @property
    def depth(self) -> Depth | None:
        """How deep module rows go."""
        asked = self.options.depth
        return Depth(asked) if isinstance(asked, int) else asked

    def add_findings(self, findings: tuple[Finding, ...]) -> None:
        """More that was found of its files."""
        self.found = replace(self.found, findings=(*self.found.findings, *findings))

    def add_notes(self, *notes: str) -> None:
        self.known = replace(self.known, notes=(*self.known.notes, *notes))

    def set_choice(self, choice: TargetChoice, notes: tuple[str, ...]) -> None:
        """Set the class that the audit is for; `notes` are those before a class was chosen.

        The oracle's choice replaces that of the closed forms.
        """
        self.known = replace(
            self.known,
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
        self.known = replace(self.known, expected=expected_side(expectation), kv_cache=cache)
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
    found = contents(snapshot if options.weights else without)
    begun = Outcome.begin(snapshot, options.requested)
    known = replace(begun, target=target, notes=found.notes)
    return ModelAudit(snapshot=snapshot, options=options, found=found, known=known)


# --- it is compared ---------------------------------------------------------------------------


def compared_outcome(
    case: ModelAudit, dtype: str | None, implied: Implied, packing: PackedWeights, opinion: Opinion
) -> Report:
    """Compare what is stored with what the config implies; `dtype` is the declared one."""
    found, snapshot, expectation = case.found, case.snapshot, implied.expectation
    shapes, unpacked = not found.names_only, packing.apart.read
    # Give each tensor its fate.
    reconciled = reconcile(found, expectation, implied.family, packing.apart)
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
        found,
        snapshot,
        walked.total,
        reconciled,
        written=packing.written,
        declared=dtype,
        wide_names=case.wide_names,
        parameters=expectation.parameters,
    )
    published = _published(case, expectation, observed)
    total = found.index.total_size if found.index else None
    other_names = other_names_note(reconciled, expectation, total)
    adapter = embedded_adapter(snapshot)
    # Collect the findings.
    findings = (
        *found.findings,
        *((adapter,) if isinstance(adapter, MissingComponent) else ()),
        *contradictions(case),
        *_with_unused_heads(case, implied, reconciled),
        *opinion.findings,
        *_dtypes(case, dtype, reconciled, walked),
        *index.findings,
        *_other_model(case, reconciled, expectation, total),
        *torch_copy_findings(snapshot, found),
        *other_weights(snapshot),
        *refuted_claims(published),
    )
    stand, left_out = split(findings, case.options.ignore)
    # Predict the load report.
    loads = predict(found, expectation, reconciled, findings, packing.method)
    # Put the report together.
    notes = (
        *case.known.notes,
        *((adapter,) if isinstance(adapter, str) else ()),
        *outline.notes,
        *((other_names,) if other_names else ()),
        *index.notes,
    )
    known = replace(
        case.known,
        observed=observed,
        claims=published,
        load_report=loads.report,
        in_memory=loads.in_memory,
        modules=compared_rows(reconciled, expectation, walked, depth=case.depth, shapes=shapes),
        findings=in_order(stand),
        ignored=in_order(left_out),
        tensors=TensorTable.compared(reconciled, expectation),
        notes=notes,
        unchecked=(
            *_unchecked(found, dtype, unpacked, index.unchecked),
            *_torch_copies(snapshot, found),
            *opinion.unchecked,
            *loads.unchecked,
            *case.beside,
        ),
    )
    return known.as_report(residual(observed, expectation.parameters, findings))


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
    found, snapshot = case.found, case.snapshot
    adapter = snapshot.config is not None and snapshot.config.name == ADAPTER_CONFIG
    if adapter or any("/" in head.name for head in snapshot.headers):
        return ()
    if not (snapshot.published or any(map(str.isdigit, snapshot.model))):
        return ()
    from auditor.audit.published_claims import published_counts  # noqa: PLC0415 - 10 ms, for some

    whole = not (found.unread or found.names_only)
    return published_counts(snapshot, expectation, observed, whole=whole)


def refuted_claims(counts: tuple[PublishedCount, ...]) -> Iterator[HubCount | ClaimedSize]:
    """A finding for each that is not true; programs read the Hub's, people the others.

    That the Hub counts packed words is no fault of an upload, and no alarm.
    """
    for one in counts:
        if one.verdict == "refuted":
            kind = HubCount if one.where == "hub" and not one.usual else ClaimedSize
            yield kind(
                where=one.key,
                text=one.text,
                claim=one.claim,
                actual=one.actual,
                reason=one.reason,
            )


def _dtypes(
    case: ModelAudit, dtype: str | None, reconciled: Reconciled, walked: Walk
) -> Iterator[Finding]:
    """Yield findings about dtypes other than the declared dtype or that of the variant's name."""
    dtypes = frozenset(walked.by_dtype())
    variant, wide_names = case.found.variant, case.wide_names
    if variant and (own := dtype_of(variant)):
        yield from dtype_rule(reconciled, own, dtypes, wide_names, by=f"the variant {variant}")
    else:
        yield from dtype_rule(reconciled, dtype, dtypes, wide_names)


def _with_unused_heads(
    case: ModelAudit, implied: Implied, reconciled: Reconciled
) -> Iterable[Finding]:
    """Return the findings about tensors; a head counts as unused only for a declared class."""
    findings, expectation = reconciled.findings, implied.expectation
    if not case.is_by_architectures or implied.family.declared is not expectation:
        return findings
    return with_unused_heads(findings, expectation, implied.family.siblings)


def contradictions(case: ModelAudit) -> Iterator[Finding]:
    for reason in case.contradictions:
        yield BadConfig(file=where(case.snapshot), reason=reason)


def _other_model(
    case: ModelAudit, reconciled: Reconciled, expectation: Expectation, total: float | None
) -> Iterator[Finding]:
    if case.snapshot.config is not None:
        yield from other_model_rule(reconciled, expectation, case.snapshot.config.name, total)


def _unchecked(
    found: Contents, dtype: str | None, unpacked: Unpacked, of_index: tuple[str, ...]
) -> Iterator[str]:
    """Yield what this audit did not compare."""
    yield "values: only headers are read, no weight is"
    if found.names_only:
        yield "shapes and dtypes: shards are not here, their names come from the index"
    yield from of_index
    if dtype is None:
        yield "the dtype: the config declares none for the whole model"
    if found.unread:
        yield f"{found.unread_files} weight file(s) that could not be read"
    if found.holds_unknown and unpacked is not PLAIN:
        yield "what packed tensors lack: a file that could not be read may hold it"


def _torch_copies(snapshot: Snapshot, found: Contents) -> Iterator[str]:
    yield from unread_pickles(snapshot)
    if files := uncompared_torch_copies(snapshot, found):
        yield f"{listed(files)}: not compared, for the audited files are not all there"


# --- there is nothing to compare ---------------------------------------------------------------


def no_weights(
    case: ModelAudit, expectation: Expectation, detail: str, *findings: Finding
) -> Unaudited:
    """A config alone: what it implies is known, and nothing was audited."""
    modules = ExpectedRows(expectation, depth=case.depth)
    known = replace(
        _with_findings(case, *contradictions(case), *findings),
        modules=modules,
        tensors=TensorTable.of_expected(expectation),
    )
    return known.as_unaudited(Reason.NO_WEIGHTS, detail)


def without_expectation(case: ModelAudit, *bad: BadConfig) -> Report:
    """The config is broken: what is stored is tallied, and compared with nothing."""
    unchecked = ("everything: the config does not say what to expect",)
    return replace(_tallied(case, *bad), unchecked=unchecked).as_report(None)


def unaudited_outcome(case: ModelAudit, reason: Reason, detail: str) -> Unaudited:
    """Nothing can be expected; what is stored is tallied all the same."""
    return _tallied(case).as_unaudited(reason, detail)


def _with_findings(case: ModelAudit, *findings: Finding) -> Outcome:
    stand, left_out = split(findings, case.options.ignore)
    return replace(case.known, findings=in_order(stand), ignored=in_order(left_out))


def _of_files(case: ModelAudit, walked: Walk) -> Iterator[Finding]:
    """Yield what the files contradict by themselves, whatever the architecture."""
    found, snapshot = case.found, case.snapshot
    yield from found.findings
    yield from (item.finding(file=item.file, reason=item.reason) for item in found.unread)
    yield from by_files(found, snapshot, walked.total)
    yield from torch_copy_findings(snapshot, found)
    yield from other_weights(snapshot)


def _tallied(case: ModelAudit, *bad: BadConfig) -> Outcome:
    """Sum up the stored tensors, as far as headers show what is learned; check the files alone."""
    found = case.found
    outline = _outline((tensor.name for tensor in found.tensors), None, MOST_MODULES)
    counted = counted_once(
        tuple((tensor, learned(tensor), 0) for tensor in found.tensors), found.shared
    )
    walked = walk(counted, depth=case.depth, shallow=outline.shallow)
    known = _with_findings(case, *bad, *contradictions(case), *_of_files(case, walked))
    known = replace(known, notes=(*known.notes, *outline.notes))
    if found.empty:
        return known
    shapes = not found.names_only
    return replace(
        known,
        observed=observed_side(walked, case.snapshot, shapes=shapes),
        modules=stored_rows(walked, shapes=shapes),
        tensors=TensorTable.of_stored(found.tensors, found.shared),
    )
