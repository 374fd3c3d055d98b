"""What nearly every model has, asked for beside its listing instead of after it."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import quote

from huggingface_hub import constants

from auditor.checkpoint.filenames import CONFIG, Chooser
from auditor.checkpoint.selecting import WEIGHTS
from auditor.checkpoint.snapshot import RepoFile
from auditor.downloader.answers import Answer, part_of_file, too_large, whole_body
from auditor.downloader.headers import FIRST_READ, Received, safetensors_end
from auditor.downloader.http import Session
from auditor.downloader.hub_settings import endpoint
from auditor.downloader.model_argument import HubModel
from auditor.errors import SourceError, UsageError
from auditor.tensors import Span

# Bytes of a config whose size is not listed yet; a longer one waits for the listing.
_MOST = 1024 * 1024


class _Early(NamedTuple):
    """What was sent of a file, and the commit of which that is."""

    commit: str | None
    received: Received


class EarlyReads:
    """Files asked for by name, at whatever commit the revision is now; each is taken once.

    What went wrong, or is of another commit than the listing, counts for nothing: it is asked for
    again, with the patience and the errors of any other read.
    """

    def __init__(self) -> None:
        self._asked: dict[str, Future[_Early | None]] = {}

    @classmethod
    def begin(
        cls, pool: Executor, session: Session, model: HubModel, choose: Chooser
    ) -> "EarlyReads":
        """Ask for the config and the start of the weights, if `choose` takes them of a plain model.

        A repository that has no such file costs a request more.
        """
        made = cls()
        with suppress(SourceError):
            chosen = choose({CONFIG, WEIGHTS}, model.id)
            if chosen.config == CONFIG:
                made._asked[CONFIG] = pool.submit(_tried, session, model, CONFIG, _config, None)
            if chosen.weights == WEIGHTS:
                span = Span(0, FIRST_READ)
                made._asked[WEIGHTS] = pool.submit(_tried, session, model, WEIGHTS, _start, span)
        return made

    def take(self, file: RepoFile, commit: str) -> Received | None:
        """What was sent of a file, if it is of that commit and of the size that is listed."""
        future = self._asked.pop(file.name, None)
        early = future.result() if future else None
        if early is None or early.commit != commit:
            return None
        sizes = {file.size, early.received.size} - {None}
        return early.received if len(sizes) < 2 else None  # noqa: PLR2004 - two differ


def _tried(
    session: Session,
    model: HubModel,
    name: str,
    take: Callable[[Answer], Received],
    span: Span | None,
) -> _Early | None:
    revision = quote(model.revision or constants.DEFAULT_REVISION, safe="")
    url = f"{endpoint()}/{model.id}/resolve/{revision}/{name}"
    with suppress(SourceError, UsageError):
        return session.try_once(url, lambda found: _Early(found.commit, take(found)), span=span)
    return None


def _config(answer: Answer) -> Received:
    if answer.length is None or answer.length > _MOST:
        raise too_large(CONFIG, "more", _MOST)
    content = whole_body(_MOST, CONFIG)(answer)
    return Received(content, len(content))


def _start(answer: Answer) -> Received:
    file, span = RepoFile(name=WEIGHTS, size=None), Span(0, FIRST_READ)
    return part_of_file(file, span, safetensors_end(WEIGHTS))(answer)
