"""`--values`: all numbers of files on this machine, a sample of those on the Hub."""

import importlib.util
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from auditor.checkpoint.snapshot import Fetched, Snapshot, Source
from auditor.downloader.local_file import read_all
from auditor.downloader.waits import Talk
from auditor.errors import SourceError, UsageError
from auditor.messages import listed
from auditor.reconciler.ignore import Ignore
from auditor.reconciler.tensor_values import ValuesRead
from auditor.report import Report, Unaudited
from auditor.tensors import StoredTensor
from auditor.values.adding import without_headers_alone
from auditor.values.base_files import BaseReader
from auditor.values.placing import open_files, place_tensors
from auditor.values.sampling import LookBeside, Sampler, parse_budget
from auditor.values.tokens import Tokens, read_tokens

INSTALL = 'pip install "hf-audit[values]"'


def require_numpy() -> None:
    """Raise UsageError where numpy is not installed."""
    if importlib.util.find_spec("numpy") is None:
        raise UsageError(f"--values needs numpy: {INSTALL}")


def values_reader(  # noqa: PLR0913 - one keyword for each choice a caller has
    *,
    numbers: bool,
    statistics: bool,
    budget: str | None,
    base: str | None,
    source: str,
    token: str | None,
    say: Callable[[str], None],
) -> "ValuesReader":
    """What looks at numbers, and at files beside a base's.

    Raises UsageError without numpy where numbers are asked for, and for a budget that is not one.
    """
    files = BaseReader(base, source=source, token=token, say=say)
    if not numbers:
        return ValuesReader(files, None)
    require_numpy()
    beside: LookBeside | None = None
    if base is not None:
        from auditor.values.base_numbers import BaseNumbersReader  # noqa: PLC0415 - needs numpy

        of_base = BaseNumbersReader(base, parse_budget(budget), source=source, token=token, say=say)
        beside = of_base.beside
    of_models = NumbersOfModels(
        statistics=statistics, budget=budget, token=token, say=say, beside=beside
    )
    return ValuesReader(files, of_models)


class ValuesReader:
    """Looks at the files of the models of one audit beside those of a base, and at numbers."""

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
        """The outcome with what its files and its numbers tell."""
        outcome, cost = self._base(outcome, snapshot, ignore)
        if self._numbers is None:
            return outcome
        self._numbers.spend(cost)
        return self._numbers(outcome, snapshot, ignore, models=models, redirected=redirected)


class NumbersOfModels:
    """Looks at the numbers of the models of one audit."""

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
        """So much of what may be asked of the Hub went for something else."""
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
        """The outcome with what its numbers tell, or with why they were not read."""
        if snapshot.folder is not None:
            show = Talk.of(self._say).progress
            read = partial(with_numbers, statistics=self._statistics, show=show)
            return read(outcome, snapshot, ignore, beside=self._beside)
        if snapshot.source is Source.HUB and snapshot.commit is not None:
            return self._sampler(outcome, snapshot, ignore, models=models, redirected=redirected)
        why = "values: the weight files are not on this machine"
        return replace(outcome, unchecked=(*without_headers_alone(outcome), why))


_LARGEST_TOKENIZER = 64 * 1024 * 1024  # bytes; that of Gemma 3 has 33 million


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
        from auditor.values.evidence import Evidence, LocalBytes  # noqa: PLC0415 - needs numpy
        from auditor.values.findings import with_findings  # noqa: PLC0415 - likewise
        from auditor.values.local_numbers import NumbersReader  # noqa: PLC0415 - likewise

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
            return with_findings(evidence, local_tokens(snapshot.folder), ignore, new)
    except SourceError as error:
        return outcome.as_unaudited(error.reason, str(error))


def local_tokens(folder: Path) -> Tokens:
    """What the tokenizer in the folder has; files that are too large or not there say nothing."""

    def content(name: str) -> bytes | None:
        try:
            return read_all(folder / name, _LARGEST_TOKENIZER)
        except SourceError:
            return None

    return read_tokens(content)


def _unread_dtypes(tensors: list[StoredTensor]) -> Iterator[str]:
    if tensors:
        dtypes = listed(sorted({one.dtype or "" for one in tensors}))
        yield f"values of {len(tensors):,} tensors: numbers of {dtypes} are not read"
