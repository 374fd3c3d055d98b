"""One model under audit, and the outcomes in which that ends."""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from auditor.analytic import Expectation
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
from auditor.layouts.packing import PLAIN, ReadAndHidden, Unpacked, WrittenTensor, split_off_unread
from auditor.messages import listed
from auditor.reconciler.contents import Contents, contents
from auditor.reconciler.findings import (
    BadConfig,
    ClaimedSize,
    ConfigContradiction,
    Finding,
    HubCount,
    MissingComponent,
)
from auditor.reconciler.ignore import split
from auditor.reconciler.index_rules import by_files, index_judgement
from auditor.reconciler.matching import Fate
from auditor.reconciler.module_rows import (
    ExpectedRows,
    compared_rows,
    stored_rows,
    weights_by_dtype,
)
from auditor.reconciler.other_model import dtype_rule, other_model_rule, other_names_note
from auditor.reconciler.other_weights import (
    embedded_adapter,
    other_weights,
    torch_copy_findings,
    uncompared_torch_copies,
    unread_pickles,
)
from auditor.reconciler.predicted_load import predict
from auditor.reconciler.reconcile import Reconciled, reconcile
from auditor.reconciler.repository_rules.repository_case import value_text
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
    """How the weights are packed."""

    apart: ReadAndHidden
    written: Mapping[str, WrittenTensor]  # what the layout stores, under names without a header
    method: str | None = None  # by what they are packed; None: what is stored is the model's


UNPACKED = PackedWeights(split_off_unread(PLAIN, ()), MappingProxyType({}))


class ModelAudit(Struct, kw_only=True):
    """One snapshot under audit: what is known of it grows until it is an outcome."""

    snapshot: Snapshot
    options: Options
    found: Contents
    known: Outcome
    contradictions: tuple[str, ...] = ()  # of the config with itself; its shapes are known
    beside: tuple[str, ...] = ()  # what was not read of the files beside the weights

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
        """The class that the audit is for; `notes` are all those before it was chosen."""
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
    _add_adapter(case)
    found, (expectation, family), packed = case.found, implied, packing.apart
    unpacked = packed.read
    shapes = not found.names_only
    reconciled = reconcile(found, expectation, family, packed)
    foreign = (Fate.UNEXPECTED | Fate.BUFFER).value
    names = (one.tensor.name for one in reconciled.unexpected if one.fate & foreign)
    shallow = _shallow(case, names, foreign, MOST_STRANGE_MODULES)
    walked = walk(reconciled.counted, depth=case.depth, shallow=shallow)
    index = index_judgement(
        found,
        case.snapshot,
        walked.total,
        reconciled,
        written=packing.written,
        declared=dtype,
        parameters=expectation.parameters,
    )
    layout = None if unpacked is PLAIN else unpacked.layout
    rows = weights_by_dtype(reconciled, walked) if shapes else ()
    observed = observed_side(walked, case.snapshot, shapes=shapes, layout=layout, weights=rows)
    published = _published(case, expectation, observed)
    findings = (
        *found.findings,
        *contradictions(case),
        *reconciled.findings,
        *opinion.findings,
        *_dtypes(found, dtype, reconciled, walked),
        *index.findings,
        *_other_model(case, reconciled, expectation),
        *torch_copy_findings(case.snapshot, found),
        *other_weights(case.snapshot),
        *refuted_claims(published),
    )
    stand, left_out = split(findings, case.options.ignore)
    case.add_notes(*index.notes)
    loads = predict(found, expectation, reconciled, findings, packing.method)
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
        unchecked=(
            *_unchecked(found, dtype, unpacked, index.unchecked),
            *_torch_copies(case.snapshot, found),
            *opinion.unchecked,
            *loads.unchecked,
            *case.beside,
        ),
    )
    return known.as_report(residual(observed, expectation.parameters, findings))


def _shallow(
    case: ModelAudit, names: Iterable[str], fates: int | None, most: int
) -> Shallow | None:
    """The depth down to which modules of those fates are listed, with a note if that is not all."""
    depth = depth_within(names, most)
    if depth is None:
        return None
    whose = "of tensors that nothing expects " if fates else ""
    note = f"modules {whose}are listed down to depth {depth}: below, there are more than {most:,}"
    case.add_notes(note)
    return Shallow(fates, depth)


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
    found: Contents, dtype: str | None, reconciled: Reconciled, walked: Walk
) -> Iterator[Finding]:
    """Findings where stored dtypes are not the declared one, or not that of the variant's name."""
    dtypes = frozenset(walked.by_dtype())
    if found.variant and (own := dtype_of(found.variant)):
        yield from dtype_rule(reconciled, own, dtypes, by=f"the variant {found.variant}")
    else:
        yield from dtype_rule(reconciled, dtype, dtypes)


def _add_adapter(case: ModelAudit) -> None:
    match embedded_adapter(case.snapshot):
        case str(note):
            case.add_notes(note)
        case MissingComponent() as finding:
            case.add_findings((finding,))


def contradictions(case: ModelAudit) -> Iterator[Finding]:
    for reason in case.contradictions:
        yield BadConfig(file=where(case.snapshot), reason=reason)


def _other_model(
    case: ModelAudit, reconciled: Reconciled, expectation: Expectation
) -> Iterator[Finding]:
    total = case.found.index.total_size if case.found.index else None
    if note := other_names_note(reconciled, expectation, total):
        case.add_notes(note)
    if case.snapshot.config is not None:
        file = case.snapshot.config.name
        yield from other_model_rule(reconciled, expectation, file, total)


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
    walked = _add_stored(case)
    known = _with_findings(case, *bad, *contradictions(case), *_of_files(case, walked))
    unchecked = ("everything: the config does not say what to expect",)
    return replace(known, unchecked=unchecked).as_report(None)


def unaudited_outcome(case: ModelAudit, reason: Reason, detail: str) -> Unaudited:
    """Nothing can be expected; what is stored is tallied all the same."""
    walked = _add_stored(case)
    known = _with_findings(case, *contradictions(case), *_of_files(case, walked))
    return known.as_unaudited(reason, detail)


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


def _add_stored(case: ModelAudit) -> Walk:
    """Add the tally of the stored tensors, as far as headers show what is learned."""
    found = case.found
    counted = ((tensor, learned(tensor), 0) for tensor in found.tensors)
    shallow = _shallow(case, (tensor.name for tensor in found.tensors), None, MOST_MODULES)
    walked = walk(counted_once(tuple(counted), found.shared), depth=case.depth, shallow=shallow)
    if not found.empty:
        shapes = not found.names_only
        case.known = replace(
            case.known,
            observed=observed_side(walked, case.snapshot, shapes=shapes),
            modules=stored_rows(walked, shapes=shapes),
            tensors=TensorTable.of_stored(found.tensors, found.shared),
        )
    return walked
