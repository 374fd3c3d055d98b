"""Reads of a base what the audited model's numbers are compared with, here or on the Hub."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace

from auditor.checkpoint.snapshot import Fetched, RepoFile, Snapshot
from auditor.downloader import fetch
from auditor.downloader.local_blocks import open_block_file
from auditor.errors import Reason, SourceError
from auditor.messages import quoted
from auditor.reconciler.findings import EqualsBase
from auditor.tensors import Span
from auditor.values.beside_base import BaseNumbers, changes_note, compared_with, equals_base
from auditor.values.evidence import Evidence, LocalBytes
from auditor.values.placing import Placed, place_tensors
from auditor.values.plan import PlannedSpan, SampleBudget, merged_spans, plan_spans
from auditor.values.sampled_bytes import SampledBytes
from auditor.values.telling import Interest, telling_slices


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
            paths = sorted({one.path for one in placed})
            files = {path: stack.enter_context(open_block_file(path)) for path in paths}
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
        from auditor.downloader.hub_spans import read_spans  # noqa: PLC0415 - 0.1 s

        files = {Path(one.name): RepoFile(name=one.name, size=one.size) for one in snapshot.headers}
        spans = [(files[path], span) for path, span in planned]
        return read_spans(snapshot.model, snapshot.commit, spans, token=self._token, say=self._say)


def _same_places(evidence: Evidence, known: Mapping[str, Placed]) -> Iterator[PlannedSpan]:
    """The runs that were read of each tensor, where the base has them."""
    for name, one in evidence.placed.items():
        other = known.get(name)
        if other is not None and other.span.length == one.span.length:
            for run in evidence.bytes.runs(one):
                start = other.span.start
                yield PlannedSpan(other.path, Span(start + run.start, start + run.stop))
