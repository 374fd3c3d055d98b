"""`--base`: compare a model with the one that it was made from, by files and by numbers.

Files are compared by sha256. With `--values`, tensors are compared as far as both were read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from msgspec.structs import replace

from auditor.checkpoint.selecting import ADAPTER_CONFIG, is_weights, select_config
from auditor.checkpoint.snapshot import Fetched, RepoFile, Snapshot
from auditor.downloader.fetching import fetch
from auditor.downloader.model_argument import HubModel, parse_model
from auditor.errors import Reason, SourceError, UsageError
from auditor.findings import EqualsBase, OfFiles
from auditor.findings.ignore import Ignore
from auditor.messages import listed, quoted
from auditor.names.parts import module_kind
from auditor.options import AuditRequest
from auditor.reconciler.tensor_values import BaseComparison, ModuleChanges
from auditor.report import Report, Unaudited
from auditor.tensors import Span
from auditor.values.adding import with_more_findings
from auditor.values.plan import (
    Interest,
    SampleBudget,
    merged_spans,
    parse_budget,
    plan_spans,
    valuable_slices,
)
from auditor.values.same_bytes import Digest, ListedModel, digests, is_same_file, listed_on_hub
from auditor.values.tensor_bytes import (
    LocalBytes,
    Placed,
    PlannedSpan,
    SampledBytes,
    TensorBytes,
    equal_bytes,
    fetch_sample,
    first_by_name,
    opened,
    place_tensors,
)

_SHOWN = 12  # kinds of modules in a note


class BaseReader:
    """A comparison of an audit's models with a base model, which is read once.

    If the request names no base, it is the one that the model card names, if the listing has the
    card; then a base that cannot be read does not end the audit.
    """

    def __init__(self, request: AuditRequest, say: Callable[[str], None]) -> None:
        self._base = request.base
        self._source = request.source
        self._token = request.token
        self._say = say
        self._budget = parse_budget(request.values_budget)
        self._listed_models: dict[str, ListedModel] = {}
        self._snapshot: Snapshot | None = None

    # --- files ------------------------------------------------------------------------------------

    def with_files_compared(
        self, outcome: Report | Unaudited, snapshot: Snapshot, ignore: tuple[Ignore, ...]
    ) -> tuple[Report | Unaudited, Fetched]:
        """Return the outcome with the result of the comparison, and the cost of the requests."""
        notes = tuple(_copies_note(snapshot.files))
        outcome = replace(outcome, notes=(*outcome.notes, *notes)) if notes else outcome
        name = self._base if self._base is not None else snapshot.card_base
        config = snapshot.config
        is_adapter = config is not None and config.name.endswith(ADAPTER_CONFIG)
        if name is None or is_adapter or not snapshot.headers or name == snapshot.model:
            return outcome, Fetched()
        cost = Fetched()
        try:
            if name not in self._listed_models:
                self._listed_models[name] = self._listed(name)
                cost = self._listed_models[name].fetched
            base = self._listed_models[name]
            audited = {head.name for head in snapshot.headers}
            shared = files_of_base(
                [file for file in snapshot.files if file.name in audited],
                base.files,
                digest=digests(snapshot.folder),
                digest_of_base=digests(base.folder),
            )
        except (SourceError, UsageError) as error:
            if self._base is not None and isinstance(error, SourceError):
                return outcome.as_unaudited(error.reason, str(error)), Fetched()
            if self._base is not None:
                raise
            why = f"the base {quoted(name)}, which the card names: {error}"
            return replace(outcome, unchecked=(*outcome.unchecked, why)), Fetched()
        outcome = replace(outcome, fetched=outcome.fetched.plus(cost))
        return _with_shared_files(outcome, shared, base.title, ignore), cost

    def _listed(self, name: str) -> ListedModel:
        """List the files of the base; raise SourceError or UsageError if that fails."""
        # A card is untrusted: the name in it is never a path on this machine.
        target = parse_model(name) if self._base is not None else HubModel(id=name)
        if not isinstance(target, HubModel) or self._source == "cache":
            base = fetch(name, source=self._source, say=self._say, choose=select_config)
            return ListedModel(base.model, base.files, base.commit, base.folder)
        return listed_on_hub(target, self._token, self._say)

    # --- numbers ----------------------------------------------------------------------------------

    def with_numbers_compared(
        self, outcome: Report | Unaudited, audited: "TensorsRead"
    ) -> tuple[Report | Unaudited, tuple[OfFiles, ...]]:
        """Return the outcome with the result of the comparison, and a finding if all is equal.

        Raise SourceError if the base cannot be read.
        """
        name, cost = self._base, Fetched()
        if name is None:
            return outcome, ()
        if self._snapshot is None:
            self._snapshot = fetch(name, source=self._source, token=self._token, say=self._say)
            cost = self._snapshot.fetched
        snapshot = self._snapshot
        placed, _ = place_tensors(snapshot)
        with ExitStack() as stack:
            if snapshot.folder is not None:
                data: LocalBytes | SampledBytes = stack.enter_context(opened(placed))
            elif snapshot.commit is not None or snapshot.version is not None:
                planned = self._planned(audited, placed)
                data, spent = fetch_sample(snapshot, planned, self._token, self._say)
                cost = cost.plus(spent)
            else:
                detail = f"the weights of {quoted(name)} are not on this machine or the Hub"
                raise SourceError(Reason.NO_WEIGHTS, detail)
            base = TensorsRead(snapshot, first_by_name(placed), data, snapshot.folder is None)
            comparison, is_complete = _compared(audited, base)
        new: tuple[OfFiles, ...] = ()
        has_others = comparison.changed or comparison.uncompared or not comparison.unchanged
        is_known = any(EqualsBase.describes(one) for one in outcome.findings)
        title = ListedModel(comparison.model, (), comparison.commit).title
        if is_complete and not has_others and not is_known:
            reason = f"each of {comparison.unchanged:,} tensors has the same bytes as in {title}"
            files = tuple(head.name for head in audited.snapshot.headers)
            new = (EqualsBase(files=files, reason=reason),)
        note = _changes_note(comparison, title, is_sample=audited.sampled or base.sampled)
        values = outcome.values
        outcome = replace(
            outcome,
            values=replace(values, base=comparison) if values else None,
            fetched=outcome.fetched.plus(cost),
            notes=(*outcome.notes, note),
        )
        return outcome, new

    def _planned(self, audited: "TensorsRead", placed: Sequence[Placed]) -> tuple[PlannedSpan, ...]:
        """Plan the spans of the base to read: the same as in the audited model's sample, if any."""
        budget = self._budget
        if self._snapshot and self._snapshot.fetched.redirects:
            budget = SampleBudget(requests=budget.requests // 2, bytes=budget.bytes)
        if not audited.sampled:
            return plan_spans(placed, valuable_slices(placed, Interest()), budget)
        spans = sorted(
            merged_spans(_same_places(audited, first_by_name(placed))),
            key=lambda one: -one.span.length,
        )
        return merged_spans(spans[: budget.requests])


# --- files --------------------------------------------------------------------------------------


class SharedFiles(NamedTuple):
    """The names of the audited weight files, by the result of the comparison."""

    equal: tuple[str, ...]  # a file of the base has the same bytes
    other: tuple[str, ...]  # no file of the base has the same bytes
    unknown: tuple[str, ...]  # a digest is missing


def files_of_base(
    files: Sequence[RepoFile],
    base: Sequence[RepoFile],
    *,
    digest: Digest,
    digest_of_base: Digest,
) -> SharedFiles:
    """Compare the files with the base's weight files."""
    weights = [file for file in base if is_weights(file.name)]
    names_by_result: dict[bool | None, list[str]] = {True: [], False: [], None: []}
    for file in files:
        results = {is_same_file(file, one, digest, digest_of_base) for one in weights}
        result = True if True in results else None if None in results else False
        names_by_result[result].append(file.name)
    equal, other, unknown = (tuple(names_by_result[result]) for result in (True, False, None))
    return SharedFiles(equal, other, unknown)


def _copies_note(files: Sequence[RepoFile]) -> Iterator[str]:
    """Yield a line for each group of weight files with equal bytes according to the listing."""
    groups: dict[str, list[str]] = {}
    for file in files:
        if file.sha256 is not None and is_weights(file.name):
            groups.setdefault(file.sha256, []).append(file.name)
    for names in groups.values():
        if len(names) > 1:
            yield f"{listed(names)} have the same bytes (sha256)"


def _with_shared_files(
    outcome: Report | Unaudited, shared: SharedFiles, title: str, ignore: tuple[Ignore, ...]
) -> Report | Unaudited:
    new, notes = [], []
    count = sum(map(len, shared))
    if shared.equal and len(shared.equal) == count:
        subject = f"all {count:,} weight files have" if count > 1 else "the weight file has"
        reason = f"{subject} the same sha256 as in {title}"
        new.append(EqualsBase(files=shared.equal, reason=reason))
    elif shared.equal:
        names = listed(shared.equal)
        notes.append(
            f"{len(shared.equal):,} of {count:,} weight files are equal to {title}'s: {names}"
        )
    elif len(shared.other) == count:
        notes.append(f"no weight file is equal to one of {title}")
    outcome = with_more_findings(outcome, new, ignore, notes=notes)
    if not shared.unknown:
        return outcome
    why = f"the base: digests of {listed(shared.unknown)} or of {title} are unknown"
    return replace(outcome, unchecked=(*outcome.unchecked, why))


# --- numbers ------------------------------------------------------------------------------------


class TensorsRead(NamedTuple):
    """The tensors of a model, and the bytes that were read of them."""

    snapshot: Snapshot
    placed: Mapping[str, Placed]  # by name
    data: TensorBytes
    sampled: bool  # whether only a sample was read


def _same_places(
    audited: TensorsRead, placed_of_base: Mapping[str, Placed]
) -> Iterator[PlannedSpan]:
    """Yield the spans of the base that correspond to the bytes read of the audited tensors."""
    for name, placed in audited.placed.items():
        base = placed_of_base.get(name)
        if base is not None and base.span.length == placed.span.length:
            for run in audited.data.runs(placed):
                start = base.span.start
                yield PlannedSpan(base.path, Span(start + run.start, start + run.stop))


def _compared(audited: TensorsRead, base: TensorsRead) -> tuple[BaseComparison, bool]:
    """Return the counts of changed tensors, and whether all bytes of both models were compared."""
    results_by_kind: dict[str, list[bool]] = {}  # whether each tensor is unchanged
    is_complete = audited.placed.keys() == base.placed.keys()
    for name, placed in audited.placed.items():
        other, size = base.placed.get(name), 0
        if other is not None and _form(other) == _form(placed):
            is_same, size = equal_bytes(audited.data, placed, base.data, other)
            if size:
                results_by_kind.setdefault(module_kind(name), []).append(is_same)
        is_complete &= other is not None and size == placed.span.length
    modules = tuple(
        ModuleChanges(kind, sum(results), len(results) - sum(results))
        for kind, results in sorted(results_by_kind.items())
    )
    unchanged = sum(module.unchanged for module in modules)
    changed = sum(module.changed for module in modules)
    comparison = BaseComparison(
        model=base.snapshot.model,
        commit=base.snapshot.commit,
        unchanged=unchanged,
        changed=changed,
        uncompared=len(audited.placed) - unchanged - changed,
        modules=modules,
    )
    return comparison, is_complete


def _form(placed: Placed) -> tuple[object, ...]:
    return placed.tensor.dtype, placed.tensor.shape, placed.span.length


def _changes_note(comparison: BaseComparison, title: str, *, is_sample: bool) -> str:
    """Summarise the changed tensors in one line."""
    compared = comparison.unchanged + comparison.changed
    if not compared:
        return f"compared with {title}: no tensor, because names, shapes or dtypes differ"
    how = "as far as they were sampled, " if is_sample else ""
    left_out = f"; {comparison.uncompared:,} were not compared" if comparison.uncompared else ""
    summary = f"{how}{comparison.unchanged:,} of {compared:,} tensors are unchanged"
    changes = [
        f"{module.module} {module.changed:,} of {module.changed + module.unchanged:,}"
        for module in comparison.modules
        if module.changed
    ]
    more = f" and {len(changes) - _SHOWN:,} more" if len(changes) > _SHOWN else ""
    changed = f"; changed: {', '.join(changes[:_SHOWN])}{more}" if changes else ""
    return f"compared with {title}: {summary}{changed}{left_out}"
