"""`--values`: read all numbers of local files, or a sample of files on the Hub; add findings."""

import importlib.util
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from auditor.checkpoint.snapshot import Fetched, Snapshot, Source
from auditor.downloader.waits import ProgressLines
from auditor.errors import SourceError, UsageError
from auditor.extras import install
from auditor.findings import Duplicate, Finding, Unexpected
from auditor.findings.ignore import Ignore
from auditor.machine import require_address_space
from auditor.messages import listed
from auditor.reconciler.tensor_values import ValuesRead
from auditor.report import Report, Unaudited
from auditor.request import AuditRequest
from auditor.tensors import StoredTensor
from auditor.values.adding import without_headers_alone
from auditor.values.base_files import BaseReader
from auditor.values.placing import Placed, open_files, place_tensors
from auditor.values.plan import Interest, SampleBudget, parse_budget, plan_spans, valuable_slices
from auditor.values.tokens import Tokens, known_tokens, unchecked_rows

if TYPE_CHECKING:
    from auditor.values.evidence import Evidence, TensorBytes

# A function that compares with a base: it adds the result to the evidence, and returns findings.
CompareWithBase = Callable[["Evidence"], tuple["Evidence", tuple[Finding, ...]]]

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


def values_reader(request: AuditRequest, say: Callable[[str], None]) -> "ValuesReader":
    """Return the reader of numbers, which also compares files with a base's.

    Raise UsageError if numpy is needed and not installed, or if the budget cannot be parsed.
    """
    base, source, token = request.base, request.source, request.token
    files = BaseReader(base, source=source, token=token, say=say)
    if not request.reads_values:
        return ValuesReader(files, None)
    require_numpy()
    with_base: CompareWithBase | None = None
    budget = request.values_budget
    if base is not None:
        from auditor.values.base_numbers import BaseNumbersReader  # noqa: PLC0415 - needs numpy

        of_base = BaseNumbersReader(base, parse_budget(budget), source=source, token=token, say=say)
        with_base = of_base.with_base
    of_models = NumbersOfModels(
        statistics=request.statistics, budget=budget, token=token, say=say, with_base=with_base
    )
    return ValuesReader(files, of_models)


class ValuesReader:
    """A reader of an audit's models: it reads numbers, and compares files with a base's."""

    def __init__(
        self,
        base: BaseReader,
        numbers: "NumbersOfModels | None",  # None: only files are compared
    ) -> None:
        self._base = base
        self._numbers = numbers

    def __call__(
        self,
        outcome: Report | Unaudited,
        snapshot: Snapshot,
        ignore: tuple[Ignore, ...],
        *,
        models: int = 1,
        redirected: bool | None = None,
    ) -> Report | Unaudited:
        """Return the outcome with the findings of its files and its numbers."""
        outcome, cost = self._base(outcome, snapshot, ignore)
        if self._numbers is None:
            return outcome
        self._numbers.spend(cost)
        return self._numbers(outcome, snapshot, ignore, models=models, redirected=redirected)


class NumbersOfModels:
    """A reader of the numbers of an audit's models, one model after the other.

    All numbers of local files are read. On the Hub, all models together have one budget.
    """

    def __init__(
        self,
        *,
        statistics: bool,
        budget: str | None,
        token: str | None,
        say: Callable[[str], None],
        with_base: CompareWithBase | None,
    ) -> None:
        self._budget = parse_budget(budget)  # the rest of the budget
        self._models_left = 0
        self._statistics = statistics
        self._token = token
        self._say = say
        self._with_base = with_base

    def spend(self, cost: Fetched) -> None:
        """Reduce the budget by the cost of requests to the Hub that were made elsewhere."""
        requests = max(0, self._budget.requests - cost.requests)
        self._budget = SampleBudget(requests=requests, bytes=self._budget.bytes)

    def __call__(
        self,
        outcome: Report | Unaudited,
        snapshot: Snapshot,
        ignore: tuple[Ignore, ...],
        *,
        models: int,
        redirected: bool | None,
    ) -> Report | Unaudited:
        """Return the outcome with the findings of its numbers, or the reason they were not read.

        `models` is the number of models in the repository. `redirected` is whether the Hub
        redirects requests for its files; if None, the cost of this model's headers shows it. The
        outcome is Unaudited if a file cannot be read, or has changed since its header was read.
        """
        self._models_left = self._models_left or models
        try:
            if snapshot.folder is not None:
                return self._with_all_numbers(outcome, snapshot, snapshot.folder, ignore)
            if snapshot.source is Source.HUB and snapshot.commit is not None:
                if redirected is None:
                    redirected = snapshot.fetched.redirects > 0
                return self._with_sample(outcome, snapshot, ignore, cost=1 + redirected)
        except SourceError as error:
            return outcome.as_unaudited(error.reason, str(error))
        finally:
            self._models_left -= 1
        return _unread(outcome, "values: the weight files are not on this machine")

    def _with_all_numbers(
        self,
        outcome: Report | Unaudited,
        snapshot: Snapshot,
        folder: Path,
        ignore: tuple[Ignore, ...],
    ) -> Report | Unaudited:
        placed, gaps = place_tensors(snapshot, folder)
        require_numpy()  # checked again, because memory was used since
        from auditor.values.evidence import LocalBytes  # noqa: PLC0415 - needs numpy
        from auditor.values.local_numbers import NumbersReader  # noqa: PLC0415 - likewise

        show = ProgressLines.of(self._say).progress
        tensors = NumbersReader(statistics=self._statistics, show=show).read(placed)
        names = {one.name for one in tensors}
        unread = [one.tensor for one in placed if one.tensor.name not in names]
        values = ValuesRead(
            tensors=tensors,
            bytes=sum(one.span.length for one in placed if one.tensor.name in names),
            of=sum(one.span.length for one in placed),
            of_tensors=len(placed),
        )
        with open_files(placed) as files:
            return self._with_findings(
                replace(outcome, values=values),
                snapshot,
                ignore,
                placed,
                LocalBytes(files),
                unchecked=(*_unread_dtypes(unread), *gaps),
            )

    def _with_sample(
        self,
        outcome: Report | Unaudited,
        snapshot: Snapshot,
        ignore: tuple[Ignore, ...],
        *,
        cost: int,
    ) -> Report | Unaudited:
        from auditor.values.evidence import fetch_sample, sampled_values  # noqa: PLC0415 - needs numpy

        placed, gaps = place_tensors(snapshot, Path())
        slices = valuable_slices(placed, _interest(outcome, known_tokens(snapshot.companions)))
        planned = plan_spans(placed, slices, self._share(cost))
        if not planned:
            why = "values: not sampled: no readable tensors, or the budget is zero"
            return _unread(outcome, why, *gaps)
        data, fetched = fetch_sample(snapshot, planned, self._token, self._say)
        self._budget = SampleBudget(
            requests=self._budget.requests - cost * len(planned),
            bytes=self._budget.bytes - fetched.bytes,
        )
        values = ValuesRead(
            tensors=sampled_values(placed, data, statistics=self._statistics),
            bytes=data.size,
            of=sum(one.span.length for one in placed),
            of_tensors=len(placed),
            sampled=True,
            fetched=fetched,
        )
        return self._with_findings(
            replace(outcome, values=values, fetched=outcome.fetched.plus(fetched)),
            snapshot,
            ignore,
            placed,
            data,
            unchecked=(*_unsampled(values), *gaps),
        )

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
        data: "TensorBytes",
        unchecked: Iterable[str],
    ) -> Report | Unaudited:
        """Return the outcome with the findings of the rules about numbers."""
        from auditor.values.evidence import Evidence  # noqa: PLC0415 - needs numpy
        from auditor.values.rules import with_findings  # noqa: PLC0415 - likewise

        tokens = known_tokens(snapshot.companions)
        rows = unchecked_rows(tokens, (one.tensor.name for one in placed))
        tensors = outcome.values.tensors if outcome.values else ()
        is_sample = outcome.values is not None and outcome.values.sampled
        files = Counter(one.tensor.name for one in placed)
        copies: dict[str, tuple[Placed, ...]] = {}
        for one in placed:
            if files[one.tensor.name] > 1:
                copies[one.tensor.name] = (*copies.get(one.tensor.name, ()), one)
        evidence = Evidence(
            outcome=replace(
                outcome, unchecked=(*without_headers_alone(outcome), *unchecked, *rows)
            ),
            snapshot=snapshot,
            placed={one.tensor.name: one for one in reversed(placed)},
            values={one.name: one for one in reversed(tensors)},
            bytes=data,
            copies=copies,
            sampled=is_sample
            and (any(one.sampled for one in tensors) or len(tensors) < len(placed)),
        )
        evidence, new = self._with_base(evidence) if self._with_base else (evidence, ())
        return with_findings(evidence, tokens, ignore, new)


def _unread(outcome: Report | Unaudited, *reasons: str) -> Report | Unaudited:
    return replace(outcome, unchecked=(*without_headers_alone(outcome), *reasons))


def _unread_dtypes(tensors: list[StoredTensor]) -> Iterator[str]:
    if tensors:
        dtypes = listed(sorted({one.dtype or "" for one in tensors}))
        yield f"values of {len(tensors):,} tensors: numbers of {dtypes} are not read"


def _unsampled(values: ValuesRead) -> Iterator[str]:
    """Yield a line about the size of the sample, unless all numbers were read."""
    if values.bytes < values.of:
        sample = f"sampled {len(values.tensors):,} of {values.of_tensors:,} tensors"
        yield f"values: {sample}, {values.bytes / 1000:,.0f} kB of {values.of / 1000:,.0f}"


def _interest(outcome: Report | Unaudited, tokens: Tokens) -> Interest:
    duplicates = [one for one in outcome.findings if isinstance(one, Duplicate)]
    unexpected = [one for one in outcome.findings if isinstance(one, Unexpected)]
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
