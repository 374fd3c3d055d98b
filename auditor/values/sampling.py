"""`audit ORG/NAME --values`: a few spans of files on the Hub, and what they add to an outcome."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from auditor.checkpoint.snapshot import Fetched, RepoFile, Snapshot
from auditor.errors import SourceError, UsageError
from auditor.findings import Duplicate, Finding, Unexpected
from auditor.findings.ignore import Ignore
from auditor.messages import quoted
from auditor.reconciler.tensor_values import ValuesRead
from auditor.report import Report, Unaudited
from auditor.values.adding import without_headers_alone
from auditor.values.placing import place_tensors
from auditor.values.plan import PlannedSpan, SampleBudget, plan_spans
from auditor.values.telling import Interest, telling_slices
from auditor.values.tokens import Tokens, known_tokens, unchecked_rows

if TYPE_CHECKING:
    from auditor.values.evidence import Evidence

DEFAULT = SampleBudget(requests=8, bytes=600_000)
_REDIRECT = 4 * 1024  # bytes of a redirect's own body, at the most

_UNITS = {"": 0, "b": 1, "kb": 1000, "kib": 1024, "mb": 10**6, "mib": 2**20, "gb": 10**9}


def parse_budget(text: str | None) -> SampleBudget:
    """`16`, `2MB` or `16,2MB`: requests, bytes, or both; UsageError for anything else."""
    requests, size = DEFAULT.requests, DEFAULT.bytes
    for part in text.split(",") if text is not None else ():
        number = part.strip().rstrip("kKmMgGiIbB").strip()
        unit = part.strip()[len(number) :].strip().lower()
        if not (number.isascii() and number.isdecimal() and len(number) < 10 and unit in _UNITS):  # noqa: PLR2004
            raise UsageError(f"--values-budget {quoted(text or '')} is not like 16, 2MB or 16,2MB")
        if unit:
            size = int(number) * _UNITS[unit]
        else:
            requests = int(number)
    return SampleBudget(requests=requests, bytes=size)


# Adds to an evidence what a comparison with a base shows.
LookBeside = Callable[["Evidence"], tuple["Evidence", tuple[Finding, ...]]]


class Sampler:
    """A sampler of the models of a repository, one after another, within a shared budget."""

    def __init__(
        self,
        budget: SampleBudget,
        *,
        statistics: bool,
        token: str | None,
        say: Callable[[str], None],
        beside: LookBeside | None = None,
    ) -> None:
        self._left = budget
        self._models = 0  # that are still to come
        self._statistics = statistics
        self._token = token
        self._say = say
        self._beside = beside

    def spend(self, requests: int) -> None:
        """Reduce the budget by requests that were made for something else."""
        self._left = SampleBudget(
            requests=max(0, self._left.requests - requests), bytes=self._left.bytes
        )

    def __call__(
        self,
        outcome: Report | Unaudited,
        snapshot: Snapshot,
        ignore: tuple[Ignore, ...],
        *,
        models: int = 1,
        redirected: bool | None = None,
    ) -> Report | Unaudited:
        """The outcome with what a sample shows; Unaudited where the sample cannot be had.

        `models` is how many there are in the repository, `redirected` whether its files are on
        another host than the Hub; None: of this one, what it cost to read the headers tells.
        """
        self._models = self._models or models
        if redirected is None:
            redirected = snapshot.fetched.redirects > 0
        try:
            return self._with_sample(outcome, snapshot, ignore, cost=1 + redirected)
        except SourceError as error:
            return outcome.as_unaudited(error.reason, str(error))
        finally:
            self._models -= 1

    def _with_sample(
        self,
        outcome: Report | Unaudited,
        snapshot: Snapshot,
        ignore: tuple[Ignore, ...],
        *,
        cost: int,
    ) -> Report | Unaudited:
        from auditor.values.evidence import (  # noqa: PLC0415 - needs numpy
            Evidence,
            SampledBytes,
            sampled_values,
        )
        from auditor.values.findings import with_findings  # noqa: PLC0415 - likewise

        placed, left_out = place_tensors(snapshot, Path())
        tokens = known_tokens(snapshot.companions)
        slices = telling_slices(placed, _interest(outcome, tokens))
        planned = plan_spans(placed, slices, self._share(cost))
        if not planned:
            why = "values: none were sampled, for there is nothing to read or no leave to"
            return replace(outcome, unchecked=(*without_headers_alone(outcome), why, *left_out))
        parts, fetched = read_planned(snapshot, planned, self._token, self._say)
        self._left = SampleBudget(
            requests=self._left.requests - cost * len(planned),
            bytes=self._left.bytes - fetched.bytes,
        )
        data = SampledBytes(zip(planned, parts, strict=True))
        tensors = sampled_values(placed, data, statistics=self._statistics)
        size, of = sum(map(len, parts)), sum(one.span.length for one in placed)
        read = ValuesRead(
            tensors=tensors,
            bytes=size,
            of=of,
            of_tensors=len(placed),
            sampled=True,
            fetched=fetched,
        )
        known = replace(
            outcome,
            values=read,
            fetched=outcome.fetched.plus(fetched),
            unchecked=(
                *without_headers_alone(outcome),
                *_unchecked(read),
                *left_out,
                *unchecked_rows(tokens, (one.tensor.name for one in placed)),
            ),
        )
        evidence = Evidence(
            outcome=known,
            snapshot=snapshot,
            placed={one.tensor.name: one for one in reversed(placed)},
            values={one.name: one for one in reversed(tensors)},
            bytes=data,
            sampled=any(one.sampled for one in tensors) or len(tensors) < len(placed),
        )
        evidence, new = self._beside(evidence) if self._beside else (evidence, ())
        return with_findings(evidence, tokens, ignore, new)

    def _share(self, cost: int) -> SampleBudget:
        """Return the budget of this model if a read costs `cost` requests."""
        requests = -(-(self._left.requests // cost) // self._models)
        size = self._left.bytes // self._models - (cost - 1) * requests * _REDIRECT
        return SampleBudget(requests=requests, bytes=max(0, size))


def read_planned(
    snapshot: Snapshot,
    planned: Sequence[PlannedSpan],
    token: str | None,
    say: Callable[[str], None],
) -> tuple[tuple[bytes, ...], Fetched]:
    """Read spans of the weight files of a model on the Hub; also return the cost."""
    from auditor.downloader.hub import read_spans  # noqa: PLC0415 - 0.1 s

    files = {Path(one.name): RepoFile(name=one.name, size=one.size) for one in snapshot.headers}
    spans = [(files[path], span) for path, span in planned]
    return read_spans(snapshot.model, snapshot.commit or "", spans, token=token, say=say)


def _unchecked(read: ValuesRead) -> Iterator[str]:
    """How much of the numbers was seen, where that is not all."""
    if read.bytes < read.of:
        seen = f"sampled {len(read.tensors):,} of {read.of_tensors:,} tensors"
        yield f"values: {seen}, {read.bytes / 1000:,.0f} kB of {read.of / 1000:,.0f}"


def _interest(outcome: Report | Unaudited, tokens: Tokens) -> Interest:
    duplicates = [one for one in outcome.findings if isinstance(one, Duplicate)]
    unexpected = [one for one in outcome.findings if isinstance(one, Unexpected)]
    return Interest(
        pairs=tuple(
            (tensor.name, of)
            for one in duplicates
            for tensor, of in zip(one.tensors, one.of, strict=True)
        ),
        doubted=frozenset(
            name for one in unexpected for name in one.names if name.endswith(".bias")
        ),
        tokens=tokens.row_count or None,
    )
