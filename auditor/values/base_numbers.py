"""Reads of a base what the audited model's numbers are compared with, here or on the Hub.

`--base` with `--values`: which tensors are those of the base, as far as both were read.
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
from auditor.messages import quoted
from auditor.reconciler.findings import EqualsBase
from auditor.reconciler.tensor_values import BaseComparison, ModuleChanges
from auditor.tensors import Span
from auditor.values.evidence import Evidence, LocalBytes, SampledBytes, TensorBytes, both_blocks
from auditor.values.name_patterns import NUMBER
from auditor.values.placing import Placed, open_files, place_tensors
from auditor.values.plan import PlannedSpan, SampleBudget, merged_spans, plan_spans
from auditor.values.sampling import read_planned
from auditor.values.telling import Interest, telling_slices


class BaseNumbers(Struct, frozen=True, kw_only=True):
    """What was read of the base."""

    model: str
    commit: str | None
    placed: Mapping[str, Placed]
    bytes: TensorBytes

    def alike(self, name: str, one: Placed) -> Placed | None:
        """The base's tensor of that name, if shape and dtype are the same."""
        other = self.placed.get(name)
        if other is None or other.span.length != one.span.length:
            return None
        here, there = one.tensor, other.tensor
        return other if (here.dtype, here.shape) == (there.dtype, there.shape) else None


class BaseNumbersReader:
    """Compares the models of one audit with one base; its headers are read once."""

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
        """The evidence with what the comparison shows; SourceError where it cannot be made."""
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
        """What was sampled of the audited model, in the base's files; else what tells most."""
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
    """The runs that were read of each tensor, where the base has them."""
    for name, one in evidence.placed.items():
        other = known.get(name)
        if other is not None and other.span.length == one.span.length:
            for run in evidence.bytes.runs(one):
                start = other.span.start
                yield PlannedSpan(other.path, Span(start + run.start, start + run.stop))


_SHOWN = 12  # kinds of modules in a note


def compared_with(evidence: Evidence, base: BaseNumbers) -> tuple[BaseComparison, bool]:
    """How many tensors are unchanged, and whether each byte of all tensors of both was compared."""
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
    """Whether what was read of both is the same, and how many bytes were compared."""
    size = 0
    for here, there in both_blocks(data, one, other_data, other):
        size += len(here)
        if not np.array_equal(here, there):
            return False, size
    return True, size


def module_kind(name: str) -> str:
    """The module of a tensor without the layer that it is in: `self_attn.q_proj`."""
    inside = NUMBER.sub("#", name).rpartition("#.")[2]
    return inside.rpartition(".")[0] or inside


def equals_base(
    found: BaseComparison, files: tuple[str, ...], *, whole: bool
) -> Iterator[EqualsBase]:
    """Where each byte of both was compared and none differs, whatever the files are."""
    if whole and found.unchanged and not (found.changed or found.uncompared):
        reason = f"each of {found.unchanged:,} tensors holds the same bytes as in {_at(found)}"
        yield EqualsBase(files=files, reason=reason)


def changes_note(found: BaseComparison, *, sampled: bool) -> str:
    """What was changed, in one line."""
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
