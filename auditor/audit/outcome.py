"""A model under audit, and its possible outcomes."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from auditor.analytic import Config, Expectation
from auditor.analytic.cache_rule import kv_cache
from auditor.analytic.kept_in_f32 import kept_in_f32
from auditor.analytic.target import TargetChoice
from auditor.audit.declaration import where
from auditor.audit.expected import Implied, Opinion, measured_cache
from auditor.audit.options import Options, TrialOptions
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
    Missing,
    OfCount,
    OfFile,
    OfKeys,
    OfStored,
    Refused,
    Unexpected,
    Unused,
)
from auditor.findings.ignore import split
from auditor.layouts.packing import PLAIN, ReadAndHidden, Unpacked, WrittenTensor, split_off_unread
from auditor.messages import listed
from auditor.names.folding import fold
from auditor.reconciler.contents import Contents, contents
from auditor.reconciler.index.rules import by_files, index_judgement
from auditor.reconciler.loading.predict import predict
from auditor.reconciler.loading.report import Predicted
from auditor.reconciler.matching import Fate
from auditor.reconciler.other_model import (
    dtype_rule,
    other_model_rule,
    other_names_note,
)
from auditor.reconciler.other_weights import (
    answer_notes,
    embedded_adapter,
    format_findings,
    other_weights,
    torch_copy_findings,
    uncompared_torch_copies,
    unread_pickles,
    unsafe_pickles,
)
from auditor.reconciler.pointed_sizes import pointed_size_note
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

# The most modules that have rows: DeepSeek-V3 has 47,000 and Kimi K2 93,000. A row takes a kilobyte
# while it is created. Unexpected tensors are named in findings, so fewer of their modules have
# rows.
MOST_MODULES = 120_000
MOST_STRANGE_MODULES = 10_000
SomeOutcome = TypeVar("SomeOutcome", bound=Outcome)
_MOST_NAMES = 5  # patterns of folded names in a reason


class PackedWeights(NamedTuple):
    """The weights after unpacking, and how they were packed."""

    tensors: ReadAndHidden
    written: Mapping[str, WrittenTensor]  # packed tensors by names that have no header
    method: str | None = None  # packing method; None if nothing is packed
    holders: frozenset[str] = frozenset()  # tensors that contain several without a packing method


UNPACKED = PackedWeights(split_off_unread(PLAIN, ()), MappingProxyType({}))


class ModelAudit(Struct, frozen=True, kw_only=True):
    """A snapshot under audit, with the results of the steps so far; each step returns a new one."""

    snapshot: Snapshot
    options: Options
    contents: Contents  # of the weight files
    outcome: Outcome  # the outcome's fields as far as they are known
    findings: tuple[Finding, ...] = ()  # about config and companion files
    contradictions: tuple[str, ...] = ()  # config values that contradict each other
    unchecked: tuple[str, ...] = ()  # companion files that were not completely read
    is_by_architectures: bool = False  # whether only `architectures` decides the class
    wide_names: re.Pattern[str] = kept_in_f32({})  # in names of 32-bit parameters

    @property
    def depth(self) -> Depth | None:
        """The requested depth of module rows."""
        depth = self.options.depth
        return Depth(depth) if isinstance(depth, int) else depth

    def with_findings(self, *findings: Finding) -> Self:
        return replace(self, findings=(*self.findings, *findings))

    def with_contradictions(self, *contradictions: str) -> Self:
        return replace(self, contradictions=(*self.contradictions, *contradictions))

    def with_outcome(self, **fields: Any) -> Self:
        """Return a copy with the given fields of its outcome replaced."""
        return replace(self, outcome=replace(self.outcome, **fields))

    def with_choice(self, choice: TargetChoice | None) -> Self:
        """Return a copy with the class that the audit is for, if one was chosen."""
        if choice is None:
            return self
        case = self.with_outcome(
            target=choice.target,
            model_type=choice.model_type,
            notes=(*self.outcome.notes, *choice.notes),
        )
        if choice.contradiction:
            case = case.with_contradictions(choice.contradiction)
        return case.with_findings(*_type_contradictions(self.snapshot, choice))

    def with_expected(self, expectation: Expectation, config: Config) -> Self:
        """Return a copy with the expected tensors' counts and the KV cache in its outcome."""
        cache = kv_cache(expectation, config)
        if cache is None and self.options.kv_cache and expectation.by != "closed-form":
            cache = measured_cache(config, expectation.target)
        case = self.with_outcome(expected=expected_side(expectation), kv_cache=cache)
        return replace(case, wide_names=kept_in_f32(config.values))


def _type_contradictions(snapshot: Snapshot, choice: TargetChoice) -> Iterator[OfKeys]:
    """Yield a finding if the config's class and model type do not agree."""
    if choice.namesake is None:
        return
    file, values = where(snapshot), choice.around.config.values
    keys = ("architectures", "model_type")
    yield ConfigContradiction(
        says=tuple((file, key, value_text(values.get(key))) for key in keys),
        reason=choice.namesake,
        fix=f'set architectures to ["{choice.declared}"], or model_type to that of the class',
    )


def begin_audit(snapshot: Snapshot, options: Options, target: str | None) -> ModelAudit:
    """Begin the audit of a snapshot, before its config is read."""
    without = replace(snapshot, headers=(), index=None, unopened=())
    weights = contents(snapshot if options.weights else without)
    initial = Outcome.begin(snapshot, options.requested)
    outcome = replace(initial, target=target, notes=weights.notes)
    return ModelAudit(snapshot=snapshot, options=options, contents=weights, outcome=outcome)


# --- outcomes with a comparison ---------------------------------------------------------------


def compared_outcome(
    case: ModelAudit, dtype: str | None, implied: Implied, packing: PackedWeights, opinion: Opinion
) -> Report:
    """Compare the stored tensors with the implied ones; `dtype` is the declared dtype."""
    weights, snapshot, expectation = case.contents, case.snapshot, implied.expectation
    shapes, unpacked = not weights.names_only, packing.tensors.read
    # Give each tensor its fate.
    reconciled = reconcile(weights, expectation, implied.family, packing.tensors, implied.where)
    # Sum up the stored tensors; if many are unexpected, list their modules only to some depth.
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
        weights,
        snapshot,
        walked.total,
        reconciled,
        written=packing.written,
        declared=dtype,
        wide_names=case.wide_names,
    )
    published = _published(case, expectation, observed)
    total = weights.index.total_size if weights.index else None
    other_names = other_names_note(reconciled, expectation, total)
    pointed = None
    if packing.method is None:  # packed weights have sizes of their own
        pointed = pointed_size_note(
            snapshot,
            weights,
            reconciled,
            expectation=expectation,
            family=implied.family,
            declared=dtype,
        )
    # Collect the findings.
    findings = (
        *weights.findings,
        *case.findings,
        *embedded_adapter(snapshot),
        *contradictions(case),
        *_with_unused_heads(
            case,
            implied,
            tuple(_as_by_llama_cpp(reconciled.findings, expectation, packing.method)),
        ),
        *opinion.findings,
        *_dtypes(case, dtype, reconciled, walked),
        *index.findings,
        *_other_model(case, reconciled, expectation, total),
        *torch_copy_findings(snapshot, weights),
        *other_weights(snapshot),
        *refuted_claims(published),
    )
    reported, ignored = split(findings, case.options.ignore)
    # Predict the load report.
    loads = Predicted()
    if not isinstance(case.options, TrialOptions):
        loads = predict(weights, expectation, reconciled, findings, packing.method)
    # Put the report together.
    notes = (
        *case.outcome.notes,
        *outline.notes,
        *filter(None, (other_names, pointed)),
        *index.notes,
        *answer_notes(snapshot),
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
            *_unchecked(weights, dtype, unpacked, index.unchecked),
            *_torch_copies(snapshot, weights),
            *opinion.unchecked,
            *loads.unchecked,
            *case.unchecked,
        ),
    )
    return outcome.as_report(residual(observed, expectation.parameters, findings))


def _as_by_llama_cpp(
    findings: tuple[Finding, ...], expectation: Expectation, method: str | None
) -> Iterator[Finding]:
    """Yield the findings; those of a GGUF file in llama.cpp's names, and as it judges them."""
    if not (method and method.startswith("gguf")):
        yield from findings
        return
    from auditor.layouts.gguf import is_refused  # noqa: PLC0415 - few are GGUF
    from auditor.layouts.gguf_names import names_in_file  # noqa: PLC0415 - likewise

    for finding in findings:
        if Missing.describes(finding):
            names = fold(names_in_file(expectation.model_type, finding.names))
            more = f" and {len(names) - _MOST_NAMES:,} more" if len(names) > _MOST_NAMES else ""
            examples = f"{', '.join(names[:_MOST_NAMES])}{more}"
            reason = f"{finding.reason}; GGUF has it as {examples}" if names else finding.reason
            yield replace(finding, reason=reason)
        elif Unexpected.describes(finding) and expectation.model_type == "clip":
            yield replace(finding, reason="llama.cpp's clip does not load a tensor of this name")
        elif isinstance(finding, OfStored) and finding.kind in {Unexpected.kind, Unused.kind}:
            refused = finding.only(is_refused)
            if refused.names:
                yield Refused(
                    tensors=refused.tensors,
                    more=finding.more,
                    more_parameters=finding.more_parameters,
                    reason="llama.cpp refuses a file with a tensor that it does not use",
                )
            if len(refused.names) < len(finding.names):
                rest = finding.only(lambda name: not is_refused(name))
                yield replace(rest, more=0, more_parameters=0) if refused.names else finding
        else:
            yield finding


class _Outline(NamedTuple):
    """The depth down to which modules of some fates are listed, with a note about the limit.

    A fate is the outcome of matching a tensor, such as unexpected.
    """

    shallow: Shallow | None = None  # None if all modules are listed
    notes: tuple[str, ...] = ()


def _outline(names: Iterable[str], fates: int | None, most: int) -> _Outline:
    """Return the depth down to which the names have at most `most` modules, and a note on it."""
    depth = depth_within(names, most)
    if depth is None:
        return _Outline()
    whose = "of tensors that nothing expects " if fates else ""
    note = f"modules {whose}are listed down to depth {depth}: below, there are more than {most:,}"
    return _Outline(Shallow(fates, depth), (note,))


def _published(
    case: ModelAudit, expectation: Expectation, observed: Observed
) -> tuple[PublishedCount, ...]:
    """Return the judged published counts; () for adapters, whose names state the base's size.

    Return () also if weight files are in subfolders, or if there is nothing to judge: no published
    figure, and no digit in the name.
    """
    snapshot = case.snapshot
    adapter = snapshot.config is not None and snapshot.config.name == ADAPTER_CONFIG
    if adapter or any("/" in head.name for head in snapshot.headers):
        return ()
    if not (snapshot.published or any(map(str.isdigit, snapshot.model))):
        return ()
    from auditor.audit.published_claims import published_counts  # noqa: PLC0415 - 10 ms, for some

    is_complete = not (case.contents.unread or case.contents.names_only)
    return published_counts(snapshot, expectation, observed, is_complete=is_complete)


def refuted_claims(counts: tuple[PublishedCount, ...]) -> Iterator[OfCount]:
    """Yield a finding for each refuted count: OfCount for the Hub's, ClaimedSize for others.

    A Hub count of packed words is usual and not a fault of the upload, so it is a ClaimedSize too.
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
    """Yield findings about dtypes that differ from the variant's or else the declared dtype."""
    dtypes = frozenset(walked.by_dtype())
    variant, wide_names = case.contents.variant, case.wide_names
    by_name = dtype_of(variant) if variant else None
    if by_name:
        yield from dtype_rule(reconciled, by_name, dtypes, wide_names, by=f"the variant {variant}")
    else:
        yield from dtype_rule(reconciled, dtype, dtypes, wide_names)


def _with_unused_heads(
    case: ModelAudit, implied: Implied, findings: Sequence[Finding]
) -> Iterable[Finding]:
    """Return the findings; if the audit is for the declared class, also report unused heads."""
    expectation = implied.expectation
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
    weights: Contents, dtype: str | None, unpacked: Unpacked, of_index: tuple[str, ...]
) -> Iterator[str]:
    """Yield a line for each aspect that this audit did not compare."""
    yield "values: only headers are read, no weight is"
    if weights.names_only:
        yield "shapes and dtypes: shards are not here, their names come from the index"
    yield from of_index
    if dtype is None:
        yield "the dtype: the config declares none for the whole model"
    if weights.unread:
        count = weights.unread_files
        yield f"{count} weight file{'' if count == 1 else 's'} that could not be read"
    if weights.holds_unknown and unpacked is not PLAIN:
        yield "what packed tensors lack: a file that could not be read may hold it"


def _torch_copies(snapshot: Snapshot, weights: Contents) -> Iterator[str]:
    yield from unread_pickles(snapshot)
    if files := uncompared_torch_copies(snapshot, weights):
        yield f"{listed(files)}: not compared, for the audited files are not all there"


# --- outcomes without a comparison -------------------------------------------------------------


def no_weights(
    case: ModelAudit, expectation: Expectation, detail: str, *findings: Finding
) -> Unaudited:
    """Return the outcome of a config without weights, with the expected tensors' counts."""
    modules = ExpectedRows(expectation, depth=case.depth)
    outcome = replace(
        _with_findings(case, *contradictions(case), *findings),
        modules=modules,
        tensors=TensorTable.of_expected(expectation),
    )
    if case.options.weights:
        outcome = with_code_in_files(outcome, case.snapshot, case.options)
    return outcome.as_unaudited(Reason.NO_WEIGHTS, detail)


def with_code_in_files(outcome: SomeOutcome, snapshot: object, options: Options) -> SomeOutcome:
    """Add what is known of code in the files of a snapshot, if its weights were not audited."""
    if not isinstance(snapshot, Snapshot):
        return outcome
    found = (*unsafe_pickles(snapshot), *format_findings(snapshot))
    reported, ignored = split(found, options.ignore)
    return replace(
        outcome,
        findings=in_order((*outcome.findings, *reported)),
        ignored=in_order((*outcome.ignored, *ignored)),
        unchecked=(*outcome.unchecked, *unread_pickles(snapshot)),
        notes=(*outcome.notes, *answer_notes(snapshot)),
    )


def without_expectation(case: ModelAudit, *bad: OfFile) -> Report:
    """Return the outcome for a broken config: stored tensors are counted and not compared."""
    unchecked = (
        "everything: the config does not say what to expect",
        *unread_pickles(case.snapshot),
    )
    return replace(_tally(case, *bad), unchecked=unchecked).as_report(None)


def unaudited_outcome(case: ModelAudit, reason: Reason, detail: str) -> Unaudited:
    """Return an unaudited outcome, with counts of the stored tensors."""
    outcome = replace(_tally(case), unchecked=tuple(unread_pickles(case.snapshot)))
    return outcome.as_unaudited(reason, detail)


def _with_findings(case: ModelAudit, *findings: Finding) -> Outcome:
    reported, ignored = split(findings, case.options.ignore)
    return replace(case.outcome, findings=in_order(reported), ignored=in_order(ignored))


def _file_findings(case: ModelAudit, walked: Walk) -> Iterator[Finding]:
    """Yield the findings that follow from the files alone, whatever the architecture."""
    weights, snapshot = case.contents, case.snapshot
    yield from weights.findings
    yield from case.findings
    yield from (item.finding(file=item.file, reason=item.reason) for item in weights.unread)
    yield from by_files(weights, snapshot, walked.total)
    yield from torch_copy_findings(snapshot, weights)
    yield from other_weights(snapshot)


def _tally(case: ModelAudit, *bad: OfFile) -> Outcome:
    """Return an outcome that counts the stored tensors and compares them with nothing."""
    weights = case.contents
    outline = _outline((tensor.name for tensor in weights.tensors), None, MOST_MODULES)
    counted = counted_once(
        tuple((tensor, learned(tensor), 0) for tensor in weights.tensors), weights.shared
    )
    walked = walk(counted, depth=case.depth, shallow=outline.shallow)
    outcome = _with_findings(case, *bad, *contradictions(case), *_file_findings(case, walked))
    outcome = replace(outcome, notes=(*outcome.notes, *outline.notes))
    if weights.empty:
        return outcome
    shapes = not weights.names_only
    return replace(
        outcome,
        observed=observed_side(walked, case.snapshot, shapes=shapes),
        modules=stored_rows(walked, shapes=shapes),
        tensors=TensorTable.of_stored(weights.tensors, weights.shared),
    )
