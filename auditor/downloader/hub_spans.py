"""Spans of a model's files on the Hub, each by one ranged read, at the commit that was audited."""

from collections.abc import Callable, Sequence
from urllib.parse import quote

from auditor.checkpoint.snapshot import Fetched, RepoFile
from auditor.downloader.access_token import usable_token
from auditor.downloader.endpoint import endpoint
from auditor.downloader.file_answers import ranged_part
from auditor.downloader.http import Session
from auditor.downloader.model_argument import HubModel
from auditor.downloader.parallel import threads
from auditor.downloader.waits import Talk
from auditor.tensors import Span

_AT_ONCE = 8


def read_spans(
    model: str,
    commit: str,
    spans: Sequence[tuple[RepoFile, Span]],
    *,
    token: str | None,
    say: Callable[[str], None],
) -> tuple[tuple[bytes, ...], Fetched]:
    """The bytes of each span, in order, and what they cost.

    Raises SourceError where one of them cannot be had, is of another commit or of a file of another
    size; a server that ignores the range is left before it sends the file.
    """
    session = Session(HubModel(id=model, revision=commit), usable_token(token), Talk.of(say))

    def read(file: RepoFile, span: Span) -> bytes:
        url = f"{endpoint()}/{model}/resolve/{commit}/{quote(file.name)}"
        # Of a redirect the target is asked for anew: its signature holds for this range alone.
        return session.get(url, ranged_part(file, span), span=span, commit=commit)

    with threads(_AT_ONCE, session.stop) as pool:
        asked = [pool.submit(read, file, span) for file, span in spans]
        found = tuple(future.result() for future in asked)
    return found, session.fetched
