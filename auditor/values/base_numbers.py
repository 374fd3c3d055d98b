"""Read the numbers of a base, local or on the Hub, and compare the audited model with them.

`--base` with `--values` reports which tensors equal the base's, as far as both were read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from auditor.checkpoint.snapshot import Fetched, Snapshot
from auditor.downloader.fetching import fetch
from auditor.errors import Reason, SourceError
from auditor.findings import EqualsBase, OfFiles
from auditor.messages import quoted
from auditor.names import module_kind
from auditor.reconciler.tensor_values import BaseComparison, ModuleChanges
from auditor.tensors import Span
from auditor.values.evidence import (
    Evidence,
    LocalBytes,
    SampledBytes,
    TensorBytes,
    both_blocks,
    fetch_sample,
)
from auditor.values.placing import Placed, open_files, place_tensors
from auditor.values.plan import (
    Interest,
    PlannedSpan,
    SampleBudget,
    merged_spans,
    plan_spans,
    valuable_slices,
)


class BaseNumbers(Struct, frozen=True, kw_only=True):
    """The tensors of the base, and the bytes that were read of them."""

    model: str
    commit: str | None
    placed: Mapping[str, Placed]
    bytes: TensorBytes

    def counterpart(self, placed: Placed) -> Placed | None:
        """Return the base's tensor of the same name, shape and dtype, else None."""
        base_tensor = self.placed.get(placed.tensor.name)
        if base_tensor is None or base_tensor.span.length != placed.span.length:
            return None
        forms = {(tensor.dtype, tensor.shape) for tensor in (placed.tensor, base_tensor.tensor)}
        return base_tensor if len(forms) == 1 else None


class BaseNumbersReader:
    """A comparison of an audit's models with a base model, whose headers are read once."""

    def __init__(
        self,
        base: str,
        budget: SampleBudget,
        *,
        source: str,
        token: str | None,
        say: Callable[[str], None],
    ) -> None:
        self._base = base
        self._budget = budget
        self._source = source
        self._token = token
        self._say = say
        self._snapshot: Snapshot | None = None

    def with_base(self, evidence: Evidence) -> tuple[Evidence, tuple[OfFiles, ...]]:
        """Add the comparison to the evidence; raise SourceError if the base cannot be read."""
        with ExitStack() as stack:
            base, fetched = self._read(stack, evidence)
            comparison, is_complete = compared_with(evidence, base)
        outcome, values = evidence.outcome, evidence.outcome.values
        sampled = evidence.sampled or isinstance(base.bytes, SampledBytes)
        note = changes_note(comparison, sampled=sampled)
        new: tuple[OfFiles, ...] = ()
        if not any(EqualsBase.describes(one) for one in outcome.findings):
            files = tuple(head.name for head in evidence.snapshot.headers)
            new = tuple(equals_base(comparison, files, is_complete=is_complete))
        outcome = replace(
            outcome,
            values=replace(values, base=comparison) if values else None,
            fetched=outcome.fetched.plus(fetched),
            notes=(*outcome.notes, note),
        )
        return replace(evidence, outcome=outcome), new

    def _read(self, stack: ExitStack, evidence: Evidence) -> tuple[BaseNumbers, Fetched]:
        cost = Fetched()
        if self._snapshot is None:
            self._snapshot = fetch(
                self._base, source=self._source, token=self._token, say=self._say
            )
            cost = self._snapshot.fetched
        snapshot = self._snapshot
        placed, _ = place_tensors(snapshot, snapshot.folder or Path())
        by_name = {one.tensor.name: one for one in reversed(placed)}
        if snapshot.folder is not None:
            files = stack.enter_context(open_files(placed))
            data: LocalBytes | SampledBytes = LocalBytes(files)
        else:
            planned = self._planned(evidence, placed, by_name)
            if snapshot.commit is None:
                detail = f"the weights of {quoted(self._base)} are not on this machine or the Hub"
                raise SourceError(Reason.NO_WEIGHTS, detail)
            data, spent = fetch_sample(snapshot, planned, self._token, self._say)
            cost = cost.plus(spent)
        base = BaseNumbers(model=snapshot.model, commit=snapshot.commit, placed=by_name, bytes=data)
        return base, cost

    def _planned(
        self, evidence: Evidence, placed: Sequence[Placed], by_name: Mapping[str, Placed]
    ) -> tuple[PlannedSpan, ...]:
        """Plan the spans of the base to read: the same as in the audited model's sample, if any."""
        budget = self._budget
        if self._snapshot and self._snapshot.fetched.redirects:
            budget = SampleBudget(requests=budget.requests // 2, bytes=budget.bytes)
        if not evidence.sampled:
            return plan_spans(placed, valuable_slices(placed, Interest()), budget)
        spans = sorted(
            merged_spans(_same_places(evidence, by_name)), key=lambda one: -one.span.length
        )
        return merged_spans(spans[: budget.requests])


def _same_places(evidence: Evidence, base: Mapping[str, Placed]) -> Iterator[PlannedSpan]:
    """Yield the spans of the base that correspond to the bytes read of the audited tensors."""
    for name, placed in evidence.placed.items():
        base_tensor = base.get(name)
        if base_tensor is not None and base_tensor.span.length == placed.span.length:
            for run in evidence.bytes.runs(placed):
                start = base_tensor.span.start
                yield PlannedSpan(base_tensor.path, Span(start + run.start, start + run.stop))


_SHOWN = 12  # kinds of modules in a note


def compared_with(evidence: Evidence, base: BaseNumbers) -> tuple[BaseComparison, bool]:
    """Return the counts of changed tensors, and whether all bytes of both models were compared."""
    results_by_kind: dict[str, list[bool]] = {}  # whether each tensor is unchanged
    is_complete = evidence.placed.keys() == base.placed.keys()
    for name, placed in evidence.placed.items():
        base_tensor = base.counterpart(placed)
        is_same, size = (
            _are_equal(evidence.bytes, placed, base.bytes, base_tensor)
            if base_tensor
            else (True, 0)
        )
        is_complete &= base_tensor is not None and size == placed.span.length
        if size:
            results_by_kind.setdefault(module_kind(name), []).append(is_same)
    modules = tuple(
        ModuleChanges(kind, sum(results), len(results) - sum(results))
        for kind, results in sorted(results_by_kind.items())
    )
    unchanged, changed = (
        sum(module.unchanged for module in modules),
        sum(module.changed for module in modules),
    )
    comparison = BaseComparison(
        model=base.model,
        commit=base.commit,
        unchanged=unchanged,
        changed=changed,
        uncompared=len(evidence.placed) - unchanged - changed,
        modules=modules,
    )
    return comparison, is_complete


def _are_equal(
    data: TensorBytes, placed: Placed, other_data: TensorBytes, other: Placed
) -> tuple[bool, int]:
    """Return whether the bytes read of both tensors are equal, and how many were compared."""
    size = 0
    for block, other_block in both_blocks(data, placed, other_data, other):
        size += len(block)
        if not np.array_equal(block, other_block):
            return False, size
    return True, size


def equals_base(
    comparison: BaseComparison, files: tuple[str, ...], *, is_complete: bool
) -> Iterator[OfFiles]:
    """Yield a finding if every byte of both models was compared and none differs."""
    has_others = comparison.changed or comparison.uncompared
    if is_complete and comparison.unchanged and not has_others:
        count, base = comparison.unchanged, _title(comparison)
        yield EqualsBase(
            files=files, reason=f"each of {count:,} tensors has the same bytes as in {base}"
        )


def changes_note(comparison: BaseComparison, *, sampled: bool) -> str:
    """Summarise the changed tensors in one line."""
    base, compared = _title(comparison), comparison.unchanged + comparison.changed
    if not compared:
        return f"compared with {base}: no tensor, because names, shapes or dtypes differ"
    how = "as far as they were sampled, " if sampled else ""
    left_out = f"; {comparison.uncompared:,} were not compared" if comparison.uncompared else ""
    summary = f"{how}{comparison.unchanged:,} of {compared:,} tensors are unchanged"
    changes = [
        f"{module.module} {module.changed:,} of {module.changed + module.unchanged:,}"
        for module in comparison.modules
        if module.changed
    ]
    more = f" and {len(changes) - _SHOWN:,} more" if len(changes) > _SHOWN else ""
    changed = f"; changed: {', '.join(changes[:_SHOWN])}{more}" if changes else ""
    return f"compared with {base}: {summary}{changed}{left_out}"


def _title(comparison: BaseComparison) -> str:
    commit = f" @ {comparison.commit[:12]}" if comparison.commit else ""
    return f"{quoted(comparison.model)}{commit}"
