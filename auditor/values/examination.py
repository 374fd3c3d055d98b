"""`--values`: all numbers of files on this machine, a sample of those on the Hub."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from functools import partial

from msgspec.structs import replace

from auditor.address_space import require_address_space
from auditor.checkpoint.snapshot import Fetched, Snapshot, Source
from auditor.downloader.waits import Talk
from auditor.errors import SourceError, UsageError
from auditor.findings.ignore import Ignore
from auditor.messages import listed
from auditor.reconciler.tensor_values import ValuesRead
from auditor.report import Report, Unaudited
from auditor.request import AuditRequest
from auditor.tensors import StoredTensor
from auditor.values.adding import without_headers_alone
from auditor.values.base_files import BaseReader
from auditor.values.placing import open_files, place_tensors
from auditor.values.sampling import LookBeside, Sampler, parse_budget
from auditor.values.tokens import known_tokens, unchecked_rows

INSTALL = 'pip install "hf-audit[values]"'


# Bytes of address space that the import of numpy needs: 83 MiB with one thread of OpenBLAS and 123
# with two, measured with numpy 2.4. OpenBLAS ends the process, with exit code 1, if it gets less.
_NUMPY_SPACE = 128 * 1024 * 1024


def require_numpy() -> None:
    """Raise UsageError if numpy is not installed, MemoryError if there is no room to import it."""
    if importlib.util.find_spec("numpy") is None:
        raise UsageError(f"--values needs numpy: {INSTALL}")
    if "numpy" not in sys.modules:
        require_address_space(_NUMPY_SPACE)


def values_reader(request: AuditRequest, say: Callable[[str], None]) -> "ValuesReader":
    """Return what reads numbers, and compares files with a base's.

    Raises UsageError if numbers are asked for and numpy is not installed, or if the budget is not
    a budget.
    """
    base, source, token = request.base, request.source, request.token
    files = BaseReader(base, source=source, token=token, say=say)
    if not request.reads_values:
        return ValuesReader(files, None)
    require_numpy()
    beside: LookBeside | None = None
    budget = request.values_budget
    if base is not None:
        from auditor.values.base_numbers import BaseNumbersReader  # noqa: PLC0415 - needs numpy

        of_base = BaseNumbersReader(base, parse_budget(budget), source=source, token=token, say=say)
        beside = of_base.beside
    of_models = NumbersOfModels(
        statistics=request.statistics, budget=budget, token=token, say=say, beside=beside
    )
    return ValuesReader(files, of_models)


class ValuesReader:
    """A reader of the models of one audit: their numbers, and their files next to a base's."""

    def __init__(
        self,
        base: BaseReader,
        numbers: "NumbersOfModels | None",  # None: files are compared, and no number is read
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
    """A reader of the numbers of the models of one audit."""

    def __init__(
        self,
        *,
        statistics: bool,
        budget: str | None,
        token: str | None,
        say: Callable[[str], None],
        beside: LookBeside | None,
    ) -> None:
        self._statistics = statistics
        self._say = say
        self._beside = beside
        self._sampler = Sampler(
            parse_budget(budget), statistics=statistics, token=token, say=say, beside=beside
        )

    def spend(self, cost: Fetched) -> None:
        """Reduce the budget by requests to the Hub that were made for something else."""
        self._sampler.spend(cost.requests)

    def __call__(
        self,
        outcome: Report | Unaudited,
        snapshot: Snapshot,
        ignore: tuple[Ignore, ...],
        *,
        models: int,
        redirected: bool | None,
    ) -> Report | Unaudited:
        """Return the outcome with the findings of its numbers, or the reason they were not read."""
        if snapshot.folder is not None:
            show = Talk.of(self._say).progress
            read = partial(with_numbers, statistics=self._statistics, show=show)
            return read(outcome, snapshot, ignore, beside=self._beside)
        if snapshot.source is Source.HUB and snapshot.commit is not None:
            return self._sampler(outcome, snapshot, ignore, models=models, redirected=redirected)
        why = "values: the weight files are not on this machine"
        return replace(outcome, unchecked=(*without_headers_alone(outcome), why))


def with_numbers(  # noqa: PLR0913 - what is read, how, and beside what
    outcome: Report | Unaudited,
    snapshot: Snapshot,
    ignore: tuple[Ignore, ...],
    *,
    statistics: bool,
    show: Callable[[str | None], None],
    beside: LookBeside | None = None,
) -> Report | Unaudited:
    """Return the outcome with all numbers of its files, or with the reason why it has none.

    It is Unaudited if a file is not the one whose header was read, or changes: nothing is known.
    """
    if snapshot.folder is None:
        raise ValueError("the weight files are not on this machine")
    try:
        placed, left_out = place_tensors(snapshot, snapshot.folder)
        require_numpy()  # again: what was read since takes memory too
        from auditor.values.evidence import Evidence, LocalBytes  # noqa: PLC0415 - needs numpy
        from auditor.values.findings import with_findings  # noqa: PLC0415 - likewise
        from auditor.values.local_numbers import NumbersReader  # noqa: PLC0415 - likewise

        tokens = known_tokens(snapshot.companions)
        reader = NumbersReader(statistics=statistics, show=show)
        tensors = reader.read(placed)
        known = {one.name for one in tensors}
        unread = [one.tensor for one in placed if one.tensor.name not in known]
        read = ValuesRead(
            tensors=tensors,
            bytes=sum(one.span.length for one in placed if one.tensor.name in known),
            of=sum(one.span.length for one in placed),
            of_tensors=len(placed),
        )
        outcome = replace(
            outcome,
            values=read,
            unchecked=(
                *without_headers_alone(outcome),
                *_unread_dtypes(unread),
                *left_out,
                *unchecked_rows(tokens, (one.tensor.name for one in placed)),
            ),
        )
        with open_files(placed) as files:
            evidence = Evidence(
                outcome=outcome,
                snapshot=snapshot,
                placed={one.tensor.name: one for one in reversed(placed)},
                values={one.name: one for one in reversed(tensors)},
                bytes=LocalBytes(files),
            )
            evidence, new = beside(evidence) if beside else (evidence, ())
            return with_findings(evidence, tokens, ignore, new)
    except SourceError as error:
        return outcome.as_unaudited(error.reason, str(error))


def _unread_dtypes(tensors: list[StoredTensor]) -> Iterator[str]:
    if tensors:
        dtypes = listed(sorted({one.dtype or "" for one in tensors}))
        yield f"values of {len(tensors):,} tensors: numbers of {dtypes} are not read"
