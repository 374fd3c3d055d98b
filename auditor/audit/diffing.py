"""Two checkpoints as they are fetched, beside each other."""

from collections.abc import Callable

from auditor.comparing.differences import Comparison, compare
from auditor.comparing.sides import side_of
from auditor.downloader import fetch


def diff(
    first: str,
    second: str,
    *,
    source: str = "hub",
    token: str | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> Comparison:
    """What the second checkpoint has otherwise than the first; arguments as those of `audit`.

    Either may be of any format, quantized or not. Raises SourceError where one of them cannot be
    read or holds nothing to compare, UsageError for what cannot be asked for.
    """
    before, after = (
        side_of(fetch(model, source=source, token=token, say=say)) for model in (first, second)
    )
    return compare(before, after)
