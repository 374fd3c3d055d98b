"""What a verbose report has at its end: where everything comes from, and the formula."""

from collections.abc import Iterator

from auditor.formats.text import counted
from auditor.reconciler.tensor_values import ValuesRead
from auditor.report import Expected, Observed, Report, Unaudited


def details(outcome: Report | Unaudited) -> Iterator[tuple[str, str]]:
    """What was asked for, where it was found, and what was counted."""
    if outcome.model and outcome.model != outcome.requested:
        yield "requested", outcome.requested
    if outcome.model_type:
        yield "type", outcome.model_type
    if outcome.source:
        yield "source", outcome.source + (f": {outcome.origin}" if outcome.origin else "")
    if outcome.fetched.requests:
        fetched = outcome.fetched
        took = f"{counted(fetched.requests, 'request')}, {counted(fetched.bytes, 'byte')}"
        yield "fetched", f"{took}, {fetched.seconds:.2f} s"
    if outcome.observed:
        yield "stored", _stored(outcome.observed)
    if outcome.values:
        yield "values", _values(outcome.values)
    for one in outcome.claims:
        yield "claim", f"{one.where} ({one.key}): {one.text}, {one.verdict}"
    if outcome.expected:
        yield "expected", _expected(outcome.expected)


def _stored(observed: Observed) -> str:
    tensors = counted(observed.tensors, "tensor")
    if observed.elements is None or observed.bytes is None:
        return f"{tensors}; no header was read"
    numbers = f"{counted(observed.elements, 'element')} in {counted(observed.bytes, 'byte')}"
    trainable = "" if observed.trainable is None else f", {observed.trainable:,} of them trainable"
    return f"{tensors}, {numbers}{trainable}"


def _values(values: ValuesRead) -> str:
    size, tensors = counted(values.bytes, "byte"), counted(len(values.tensors), "tensor")
    if not values.sampled:
        return f"{size} of numbers read, in {tensors}"
    return f"sampled: {size} in {tensors}, of {values.of:,} in {values.of_tensors:,}"


def _expected(expected: Expected) -> str:
    by = expected.by.replace("-", " ")
    library = f" ({expected.library})" if expected.library else ""
    tensors = counted(expected.tensors, "tensor")
    return f"{counted(expected.parameters, 'parameter')} in {tensors}, by the {by}{library}"


def facts(outcome: Report | Unaudited) -> Iterator[tuple[str, str]]:
    """The formula with its letters, and how many numbers of each dtype are stored."""
    expected, observed = outcome.expected, outcome.observed
    if expected and expected.by != "oracle":  # whose formula is the total once more
        yield "formula", expected.formula
    if expected and expected.legend:
        letters = (
            f"{symbol.letter} = {f'{symbol.formula} = ' if symbol.formula else ''}{symbol.value} "
            f"({symbol.key}{', default' if symbol.default else ''})"
            for symbol in expected.legend
        )
        yield "where", ", ".join(letters)
    if observed and observed.by_dtype:
        yield "dtypes", ", ".join(f"{dtype} {count:,}" for dtype, count in observed.by_dtype)
