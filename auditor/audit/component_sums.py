"""The sums over the components of a repository: what its report says about all of them."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from auditor.checkpoint.snapshot import Fetched, Snapshot
from auditor.reconciler.rows import ModuleRow, Weights
from auditor.report import Expected, Observed, Report, Unaudited

ROOT = "."  # the name of the root folder in a repository of several models


def fetched_by(snapshot: Snapshot, parts: Iterable[Report | Unaudited]) -> Fetched:
    """Return the network traffic of the snapshot and of reading the parts' numbers."""
    fetched = snapshot.fetched
    for part in parts:
        fetched = fetched.plus(part.values.fetched) if part.values else fetched
    return fetched


def known_sum(counts: Iterable[int | None]) -> int | None:
    """Return the sum of counts; None if one of them is unknown."""
    numbers = list(counts)
    return None if None in numbers else sum(count for count in numbers if count is not None)


def expected_by(parts: tuple[Report | Unaudited, ...]) -> Expected | None:
    """Return the expected side of all components; None if a component has none."""
    expectations = [part.expected for part in parts if part.expected]
    if not expectations or len(expectations) < len(parts):
        return None
    libraries = [one.library for one in expectations if one.library]
    return Expected(
        by=max((one.by for one in expectations), key=("closed-form", "generated", "oracle").index),
        tensors=sum(one.tensors for one in expectations),
        parameters=sum(one.parameters for one in expectations),
        formula=" + ".join(str(one.parameters) for one in expectations),
        library=libraries[0] if libraries else None,
    )


def observed_in(parts: tuple[Report | Unaudited, ...]) -> Observed | None:
    """Return the observed side of all components; None if no component has one."""
    observations = [part.observed for part in parts if part.observed]
    if not observations:
        return None
    by_dtype: dict[str, int] = {}
    for dtype, elements in (pair for one in observations for pair in one.by_dtype):
        by_dtype[dtype] = by_dtype.get(dtype, 0) + elements
    files = (tally for one in observations for tally in one.by_file)
    layouts = {one.layout for one in observations if one.layout}
    return Observed(
        files=sum(one.files for one in observations),
        bytes=known_sum(one.bytes for one in observations),
        tensors=sum(one.tensors for one in observations),
        elements=known_sum(one.elements for one in observations),
        parameters=known_sum(one.parameters for one in observations),
        trainable=known_sum(one.trainable for one in observations),
        by_dtype=tuple(sorted(by_dtype.items())),
        by_file=tuple(sorted(files, key=lambda tally: tally.name)),
        layout=", ".join(sorted(layouts)) or None,
        weights=tuple(_weights(observations)) if all(one.weights for one in observations) else (),
    )


def _weights(observations: Iterable[Observed]) -> Iterator[Weights]:
    rows: dict[str, list[Weights]] = {}
    for row in (row for one in observations for row in one.weights):
        rows.setdefault(row.dtype, []).append(row)
    for dtype, weights in sorted(rows.items()):
        yield Weights(
            dtype=dtype,
            tensors=sum(row.tensors for row in weights),
            parameters=sum(row.parameters for row in weights),
            bytes=sum(row.bytes for row in weights),
        )


def module_rows(
    parts: tuple[Report | Unaudited, ...], observed: Observed | None
) -> Iterator[ModuleRow]:
    """Yield a row for the repository, and the root row of each part, named after its folder."""
    roots = [(part.component or ROOT, part.modules[0]) for part in parts if part.modules]
    if not roots:
        return
    tallied = observed or Observed(
        files=0, bytes=None, tensors=0, elements=None, parameters=None, trainable=None
    )
    stored = tallied.parameters
    rows = [
        replace(row, prefix=name, depth=1, share=_share(row.parameters, stored))
        for name, row in roots
    ]
    statuses = {row.status for row in rows}
    expected = known_sum(row.expected for row in rows) if len(rows) == len(parts) else None
    yield ModuleRow(
        prefix="",
        depth=0,
        tensors=tallied.tensors,
        elements=tallied.elements,
        parameters=stored,
        trainable=tallied.trainable,
        bytes=tallied.bytes,
        share=_share(stored, stored),
        expected=expected,
        difference=None if stored is None or expected is None else stored - expected,
        formula=None,
        status=statuses.pop() if len(statuses) == 1 else "differs",
    )
    yield from rows


def _share(parameters: int | None, total: int | None) -> float | None:
    return parameters / total if parameters is not None and total else None


def unchecked_in(parts: Iterable[Report | Unaudited]) -> Iterator[str]:
    """Yield the unchecked aspects that all parts have, and others with their part's folder.

    The folder follows the subject, which ends at a colon: `the dtype of 2_Dense: ...`.
    """
    outcomes = list(parts)
    sets = [set(part.unchecked) for part in outcomes if isinstance(part, Report)]
    common = set.intersection(*sets) if sets else set()
    first = next((part for part in outcomes if isinstance(part, Report)), None)
    yield from (line for line in (first.unchecked if first else ()) if line in common)
    for part in outcomes:
        if isinstance(part, Unaudited):
            yield f"{part.component}: {part.detail}"
        else:
            for line in part.unchecked:
                if line not in common:
                    subject, colon, detail = line.partition(": ")
                    yield f"{subject} of {part.component}{colon}{detail}"
