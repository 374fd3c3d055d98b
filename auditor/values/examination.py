"""`--values`: read all numbers of local files, or a sample of files on the Hub; add findings."""

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from auditor.checkpoint.snapshot import Snapshot, Source
from auditor.downloader.waits import ProgressLines
from auditor.errors import SourceError, UsageError
from auditor.extras import install
from auditor.findings import Duplicate, Unexpected
from auditor.findings.ignore import Ignore
from auditor.machine import require_address_space
from auditor.messages import listed
from auditor.options import AuditRequest
from auditor.reconciler.tensor_values import ValuesRead
from auditor.report import Report, Unaudited
from auditor.values.adding import without_headers_alone
from auditor.values.base import BaseReader, TensorsRead
from auditor.values.plan import Interest, SampleBudget, parse_budget, plan_spans, valuable_slices
from auditor.values.tensor_bytes import (
    LocalBytes,
    Placed,
    SampledBytes,
    fetch_sample,
    first_by_name,
    opened,
    place_tensors,
)
from auditor.values.tokens import Tokens, known_tokens, unchecked_rows

if TYPE_CHECKING:
    from auditor.reconciler.tensor_values import TensorValues

_REDIRECT = 4 * 1024  # the most bytes of a redirect's own body


# Bytes of address space that the import of numpy needs: 83 MiB with one thread of OpenBLAS and 123
# with two, measured with numpy 2.4. OpenBLAS ends the process, with exit code 1, if it gets less.
_NUMPY_SPACE = 128 * 1024 * 1024


def require_numpy() -> None:
    """Raise UsageError if numpy is not installed, MemoryError if there is no room to import it."""
    if importlib.util.find_spec("numpy") is None:
        raise UsageError(f"--values needs numpy: {install('values')}")
    if "numpy" not in sys.modules:
        require_address_space(_NUMPY_SPACE)


class ValuesReader:
    """A reader of an audit's models, one after the other: it compares them with a base.

    If the request has --values, it reads numbers: all of local files; on the Hub, all models
    together have one budget.
    """

    def __init__(self, request: AuditRequest, say: Callable[[str], None]) -> None:
        """Raise UsageError if numpy is needed and not installed, or for an invalid budget."""
        if request.reads_values:
            require_numpy()
        self._request = request
        self._say = say
        self._base = BaseReader(request, say)
        self._budget = parse_budget(request.values_budget)  # the rest of the budget
        self._models_left = 0

    def __call__(
        self,
        outcome: Report | Unaudited,
        snapshot: Snapshot,
        ignore: tuple[Ignore, ...],
        *,
        models: int = 1,
        redirected: bool | None = None,
    ) -> Report | Unaudited:
        """Return the outcome with the findings of its files and of its numbers.

        `models` is the number of models in the repository. `redirected` is whether the Hub
        redirects requests for its files; if None, the cost of this model's headers shows it. The
        outcome is Unaudited if a file cannot be read, or has changed since its header was read.
        """
        outcome, cost = self._base.with_files_compared(outcome, snapshot, ignore)
        if not self._request.reads_values:
            return outcome
        self._spend(cost.requests, 0)
        self._models_left = self._models_left or models
        try:
            if snapshot.folder is not None:
                return self._with_all_numbers(outcome, snapshot, ignore)
            if snapshot.source is Source.HUB and snapshot.commit is not None:
                if redirected is None:
                    redirected = snapshot.fetched.redirects > 0
                return self._with_sample(outcome, snapshot, ignore, cost=1 + redirected)
            if snapshot.source is Source.STORE and snapshot.version is not None:
                return self._with_sample(outcome, snapshot, ignore, cost=1)
        except SourceError as error:
            return outcome.as_unaudited(error.reason, str(error))
        finally:
            self._models_left -= 1
        return _unread(outcome, "values: the weight files are not on this machine")

    def _spend(self, requests: int, size: int) -> None:
        self._budget = SampleBudget(
            requests=max(0, self._budget.requests - requests), bytes=self._budget.bytes - size
        )

    def _with_all_numbers(
        self, outcome: Report | Unaudited, snapshot: Snapshot, ignore: tuple[Ignore, ...]
    ) -> Report | Unaudited:
        placed, gaps = place_tensors(snapshot)
        require_numpy()  # checked again, because memory was used since
        with opened(placed) as data:
            tensors = self._statistics(placed, data)
            names = {one.name for one in tensors}
            unread = [one.tensor for one in placed if one.tensor.name not in names]
            values = ValuesRead(
                tensors=tensors,
                bytes=sum(one.span.length for one in placed if one.tensor.name in names),
                of=sum(one.span.length for one in placed),
                of_tensors=len(placed),
            )
            dtypes = listed(sorted({one.dtype or "" for one in unread}))
            skipped = [f"values of {len(unread):,} tensors: numbers of {dtypes} are not read"]
            unchecked = (*(skipped if unread else ()), *gaps)
            outcome = replace(outcome, values=values)
            return self._with_findings(outcome, snapshot, ignore, placed, data, unchecked)

    def _statistics(
        self, placed: Sequence[Placed], data: LocalBytes | SampledBytes
    ) -> tuple["TensorValues", ...]:
        from auditor.values.reading import NumbersReader  # noqa: PLC0415 - needs numpy

        is_local = isinstance(data, LocalBytes)
        show = ProgressLines.of(self._say).progress if is_local else lambda _line: None
        return NumbersReader(data, statistics=self._request.statistics, show=show).read(placed)

    def _with_sample(
        self,
        outcome: Report | Unaudited,
        snapshot: Snapshot,
        ignore: tuple[Ignore, ...],
        *,
        cost: int,
    ) -> Report | Unaudited:
        placed, gaps = place_tensors(snapshot)
        slices = valuable_slices(placed, _interest(outcome, known_tokens(snapshot.companions)))
        planned = plan_spans(placed, slices, self._share(cost))
        if not planned:
            why = "values: not sampled: no readable tensors, or the budget is zero"
            return _unread(outcome, why, *gaps)
        data, fetched = fetch_sample(snapshot, planned, self._request.token, self._say)
        self._spend(cost * len(planned), fetched.bytes)
        values = ValuesRead(
            tensors=self._statistics(placed, data),
            bytes=data.size,
            of=sum(one.span.length for one in placed),
            of_tensors=len(placed),
            sampled=True,
            fetched=fetched,
        )
        outcome = replace(outcome, values=values, fetched=outcome.fetched.plus(fetched))
        unchecked = (*_unsampled(values), *gaps)
        return self._with_findings(outcome, snapshot, ignore, placed, data, unchecked)

    def _share(self, cost: int) -> SampleBudget:
        """Return the part of the budget for this model if a read costs `cost` requests."""
        requests = -(-(self._budget.requests // cost) // self._models_left)
        size = self._budget.bytes // self._models_left - (cost - 1) * requests * _REDIRECT
        return SampleBudget(requests=requests, bytes=max(0, size))

    def _with_findings(  # noqa: PLR0913, PLR0917 - the parts of an evidence
        self,
        outcome: Report | Unaudited,
        snapshot: Snapshot,
        ignore: tuple[Ignore, ...],
        placed: tuple[Placed, ...],
        data: LocalBytes | SampledBytes,
        unchecked: Iterable[str],
    ) -> Report | Unaudited:
        """Return the outcome with the findings of the rules about numbers."""
        from auditor.values.evidence import Evidence  # noqa: PLC0415 - needs numpy
        from auditor.values.rules import with_findings  # noqa: PLC0415 - likewise

        tokens = known_tokens(snapshot.companions)
        rows = unchecked_rows(tokens, (one.tensor.name for one in placed))
        lines = (*without_headers_alone(outcome), *unchecked, *rows)
        outcome = replace(outcome, unchecked=lines)
        tensors = outcome.values.tensors if outcome.values else ()
        is_sample = isinstance(data, SampledBytes)
        sampled = is_sample and (any(one.sampled for one in tensors) or len(tensors) < len(placed))
        placed_by_name: dict[str, tuple[Placed, ...]] = {}
        for one in placed:
            others = placed_by_name.get(one.tensor.name, ())
            placed_by_name[one.tensor.name] = (*others, one)
        by_name = first_by_name(placed)
        audited = TensorsRead(snapshot, by_name, data, sampled)
        outcome, new = self._base.with_numbers_compared(outcome, audited)
        evidence = Evidence(
            outcome=outcome,
            snapshot=snapshot,
            placed=by_name,
            values={one.name: one for one in reversed(tensors)},
            data=data,
            copies=placed_by_name,
            sampled=sampled,
        )
        return with_findings(evidence, tokens, ignore, new)


def _unread(outcome: Report | Unaudited, *reasons: str) -> Report | Unaudited:
    return replace(outcome, unchecked=(*without_headers_alone(outcome), *reasons))


def _unsampled(values: ValuesRead) -> Iterator[str]:
    """Yield a line about the size of the sample, unless all numbers were read."""
    if values.bytes < values.of:
        sample = f"sampled {len(values.tensors):,} of {values.of_tensors:,} tensors"
        yield f"values: {sample}, {values.bytes / 1000:,.0f} kB of {values.of / 1000:,.0f}"


def _interest(outcome: Report | Unaudited, tokens: Tokens) -> Interest:
    duplicates = [one for one in outcome.findings if Duplicate.describes(one)]
    unexpected = [one for one in outcome.findings if Unexpected.describes(one)]
    return Interest(
        pairs=tuple(
            (tensor.name, of)
            for duplicate in duplicates
            for tensor, of in zip(duplicate.tensors, duplicate.of, strict=True)
        ),
        doubted=frozenset(
            name for finding in unexpected for name in finding.names if name.endswith(".bias")
        ),
        tokens=tokens.row_count or None,
    )
