"""The verdicts of serving engines as rows of text."""

from collections.abc import Iterator

from auditor.engines.schemes import UNKNOWN
from auditor.report import EngineVerdict, Report, Unaudited

_WORDS = {True: "loads", False: "does not load", None: "unknown"}


def engine_rows(outcome: Report | Unaudited) -> Iterator[tuple[str, str]]:
    """Yield an engine with its version, and what it makes of the checkpoint."""
    for verdict in outcome.engines:
        yield f"{verdict.engine} {verdict.version}", engine_sentence(verdict)


def engine_sentence(verdict: EngineVerdict) -> str:
    """Return the verdict in words, with its reasons."""
    is_known = verdict.scheme not in {None, UNKNOWN}
    scheme = (f"quantized layers by {verdict.scheme}",) if is_known else ()
    reasons = "; ".join((*verdict.reasons, *scheme))
    return f"{_WORDS[verdict.loads]}{': ' if reasons else ''}{reasons}"


def engines_heading(outcome: Report | Unaudited) -> str:
    """Return the heading of the rows, which dates them."""
    dates = sorted({verdict.date for verdict in outcome.engines})
    return f"Engines, as their own loaders did with small saves on {', '.join(dates)}"
