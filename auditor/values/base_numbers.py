"""Read the numbers of a base, here or on the Hub, and compare the audited model's with them.

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
from auditor.findings import EqualsBase
from auditor.messages import quoted
from auditor.reconciler.tensor_values import BaseComparison, ModuleChanges
from auditor.tensors import Span
from auditor.values.evidence import Evidence, LocalBytes, SampledBytes, TensorBytes, both_blocks
from auditor.values.name_patterns import NUMBER
from auditor.values.placing import Placed, open_files, place_tensors
from auditor.values.plan import PlannedSpan, SampleBudget, merged_spans, plan_spans
from auditor.values.sampling import read_planned
from auditor.values.telling import Interest, telling_slices


class BaseNumbers(Struct, frozen=True, kw_only=True):
    """The tensors of the base and their bytes that were read."""

    model: str
    commit: str | None
    placed: Mapping[str, Placed]
    bytes: TensorBytes

    def alike(self, name: str, one: Placed) -> Placed | None:
        """Return the base's tensor of this name if its shape and dtype are equal, else None."""
        other = self.placed.get(name)
        if other is None or other.span.length != one.span.length:
            return None
        here, there = one.tensor, other.tensor
        return other if (here.dtype, here.shape) == (there.dtype, there.shape) else None


class BaseNumbersReader:
    """A comparison of the models of one audit with one base, whose headers are read once."""

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

    def beside(self, evidence: Evidence) -> tuple[Evidence, tuple[EqualsBase, ...]]:
        """Add the comparison to the evidence; raise SourceError if the base cannot be read."""
        with ExitStack() as stack:
            base, fetched = self._read(stack, evidence)
            found, whole = compared_with(evidence, base)
        outcome, read = evidence.outcome, evidence.outcome.values
        sampled = evidence.sampled or isinstance(base.bytes, SampledBytes)
        note = changes_note(found, sampled=sampled)
        new: tuple[EqualsBase, ...] = ()
        if not any(isinstance(one, EqualsBase) for one in outcome.findings):
            files = tuple(head.name for head in evidence.snapshot.headers)
            new = tuple(equals_base(found, files, whole=whole))
        known = replace(
            outcome,
            values=replace(read, base=found) if read else None,
            fetched=outcome.fetched.plus(fetched),
            notes=(*outcome.notes, note),
        )
        return replace(evidence, outcome=known), new

    def _read(self, stack: ExitStack, evidence: Evidence) -> tuple[BaseNumbers, Fetched]:
        cost = Fetched()
        if self._snapshot is None:
            self._snapshot = fetch(
                self._base, source=self._source, token=self._token, say=self._say
            )
            cost = self._snapshot.fetched
        snapshot = self._snapshot
        placed, _ = place_tensors(snapshot, snapshot.folder or Path())
        known = {one.tensor.name: one for one in reversed(placed)}
        if snapshot.folder is not None:
            files = stack.enter_context(open_files(placed))
            data: LocalBytes | SampledBytes = LocalBytes(files)
        else:
            planned = self._planned(evidence, placed, known)
            parts, spent = self._spans(snapshot, planned)
            data, cost = SampledBytes(zip(planned, parts, strict=True)), cost.plus(spent)
        base = BaseNumbers(model=snapshot.model, commit=snapshot.commit, placed=known, bytes=data)
        return base, cost

    def _planned(
        self, evidence: Evidence, placed: Sequence[Placed], known: Mapping[str, Placed]
    ) -> tuple[PlannedSpan, ...]:
        """Plan to read the base where the audited model was sampled, else its telling slices."""
        budget = self._budget
        if self._snapshot and self._snapshot.fetched.redirects:
            budget = SampleBudget(requests=budget.requests // 2, bytes=budget.bytes)
        if not evidence.sampled:
            return plan_spans(placed, telling_slices(placed, Interest()), budget)
        spans = sorted(
            merged_spans(_same_places(evidence, known)), key=lambda one: -one.span.length
        )
        return merged_spans(spans[: budget.requests])

    def _spans(
        self, snapshot: Snapshot, planned: Sequence[PlannedSpan]
    ) -> tuple[tuple[bytes, ...], Fetched]:
        if snapshot.commit is None:
            detail = f"the weights of {quoted(self._base)} are neither here nor on the Hub"
            raise SourceError(Reason.NO_WEIGHTS, detail)
        return read_planned(snapshot, planned, self._token, self._say)


def _same_places(evidence: Evidence, known: Mapping[str, Placed]) -> Iterator[PlannedSpan]:
    """Yield the spans of the base that match the runs read of each tensor."""
    for name, one in evidence.placed.items():
        other = known.get(name)
        if other is not None and other.span.length == one.span.length:
            for run in evidence.bytes.runs(one):
                start = other.span.start
                yield PlannedSpan(other.path, Span(start + run.start, start + run.stop))


_SHOWN = 12  # kinds of modules in a note


def compared_with(evidence: Evidence, base: BaseNumbers) -> tuple[BaseComparison, bool]:
    """Count the unchanged tensors; also return whether every byte of both models was compared."""
    kinds: dict[str, list[bool]] = {}
    whole = evidence.placed.keys() == base.placed.keys()
    for name, one in evidence.placed.items():
        other = base.alike(name, one)
        same, size = _same(evidence.bytes, one, base.bytes, other) if other else (True, 0)
        whole &= other is not None and size == one.span.length
        if size:
            kinds.setdefault(module_kind(name), []).append(same)
    seen = [same for each in kinds.values() for same in each]
    found = BaseComparison(
        model=base.model,
        commit=base.commit,
        unchanged=sum(seen),
        changed=len(seen) - sum(seen),
        uncompared=len(evidence.placed) - len(seen),
        modules=tuple(
            ModuleChanges(kind, sum(each), len(each) - sum(each))
            for kind, each in sorted(kinds.items())
        ),
    )
    return found, whole


def _same(
    data: TensorBytes, one: Placed, other_data: TensorBytes, other: Placed
) -> tuple[bool, int]:
    """Return whether the bytes read of both tensors are equal, and how many were compared."""
    size = 0
    for here, there in both_blocks(data, one, other_data, other):
        size += len(here)
        if not np.array_equal(here, there):
            return False, size
    return True, size


def module_kind(name: str) -> str:
    """Return the module of a tensor without its layer: `self_attn.q_proj`."""
    inside = NUMBER.sub("#", name).rpartition("#.")[2]
    return inside.rpartition(".")[0] or inside


def equals_base(
    found: BaseComparison, files: tuple[str, ...], *, whole: bool
) -> Iterator[EqualsBase]:
    """Yield a finding if every byte of both models was compared and none differs."""
    if whole and found.unchanged and not (found.changed or found.uncompared):
        reason = f"each of {found.unchanged:,} tensors holds the same bytes as in {_at(found)}"
        yield EqualsBase(files=files, reason=reason)


def changes_note(found: BaseComparison, *, sampled: bool) -> str:
    """Summarise the changed tensors in one line."""
    seen = found.unchanged + found.changed
    if not seen:
        return f"beside {_at(found)}, no tensor could be compared: names, shapes or dtypes differ"
    how = "as far as they were sampled, " if sampled else ""
    left_out = f"; {found.uncompared:,} were not compared" if found.uncompared else ""
    said = f"beside {_at(found)}, {how}{found.unchanged:,} of {seen:,} tensors are unchanged"
    changed = [one for one in found.modules if one.changed]
    names = [f"{one.module} {one.changed:,} of {one.changed + one.unchanged:,}" for one in changed]
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    where = f"; changed: {', '.join(names[:_SHOWN])}{more}" if names else ""
    return f"{said}{where}{left_out}"


def _at(found: BaseComparison) -> str:
    return f"{quoted(found.model)}{f' @ {found.commit[:12]}' if found.commit else ''}"
