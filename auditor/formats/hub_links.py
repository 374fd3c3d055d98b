"""Where people see a model, or one of its files, on the Hub."""

from urllib.parse import quote

from auditor.report import Report, Unaudited

_HUB = "https://huggingface.co"
_FROM_HUB = frozenset({"hub", "cache", "bundled"})  # sources whose models have a Hub id


def address(outcome: Report | Unaudited, file: str | None = None) -> str | None:
    """The page of the audited commit; None where the model is not on the Hub."""
    if outcome.model is None or outcome.source not in _FROM_HUB:
        return None
    place = f"{_HUB}/{quote(outcome.model, safe='/')}"
    revision = quote(outcome.commit or "main", safe="")
    if file is None:
        return f"{place}/tree/{revision}"
    return f"{place}/blob/{revision}/{quote(file, safe='/')}"
