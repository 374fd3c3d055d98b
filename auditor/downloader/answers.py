"""Answers, whose bodies are read as far as is asked, and what is taken of one: a file, or a part.

A body is left where it is slow or comes in crumbs, and taken within bounds and as announced alone.
"""

import json
import re
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus

from huggingface_hub import constants

from auditor.checkpoint.snapshot import RepoFile
from auditor.containers.safetensors import LENGTH_BYTES, MAX_HEADER
from auditor.downloader.client import Reply, whole_number
from auditor.downloader.headers import Received
from auditor.downloader.model_argument import HubModel
from auditor.downloader.retry import WINDOW, PassingError, asked_wait
from auditor.errors import Reason, SourceError
from auditor.messages import quoted
from auditor.tensors import Span

# Bytes a second that a body must keep up once the time for its headers has passed: 33 kbit/s, the
# pace of a telephone modem. The transport's own time-outs never end a body that drips on and on.
_SLOWEST = 4 * 1024

# Pieces of a body, and bytes that each of them has on average where there are more. The least that
# networks carry at once are 500; a piece costs some 30 us, and a body of single bytes minutes.
_MOST_PIECES, _CRUMB = 10_000, 256

_PARTIAL = 206
_REDIRECTS = frozenset((301, 302, 303, 307, 308))


class Answer:
    """One answer on the way to a file: a redirect, a refusal, or the file itself."""

    def __init__(
        self, reply: Reply, count: Callable[[int], None], before: "Answer | None" = None
    ) -> None:
        """`count` gets numbers of bytes as they are read; `before` redirected to this one."""
        self.url = reply.url
        self.host = reply.url.host_str
        self.status = reply.status
        self.partial = reply.status == _PARTIAL
        self.redirects = reply.status in _REDIRECTS and "location" in reply.headers
        self.headers: Mapping[str, str] = reply.headers
        self.length = reply.length
        # What all answers until this one say: of which commits the file is, and its whole size.
        self.commits: frozenset[str] = before.commits if before else frozenset()
        if "x-repo-commit" in reply.headers:  # of several answers, or several of one
            commits = reply.headers["x-repo-commit"].split(",")
            self.commits |= {one.strip() for one in commits}
        self.linked_size: int | None = before.linked_size if before else None
        if "x-linked-size" in reply.headers:
            self.linked_size = whole_number(reply.headers["x-linked-size"])
        self._since, self._within = reply.since, reply.within
        self._count = count
        self._pieces = reply.pieces()
        self._data = bytearray()
        self._read = 0  # pieces

    @property
    def age(self) -> float:
        """Seconds since the request went."""
        return time.monotonic() - self._since

    @property
    def commit(self) -> str | None:
        """The commit that the file is of; None: the Hub names none, or several."""
        return next(iter(self.commits)) if len(self.commits) == 1 else None

    def require_commit(self, expected: str) -> None:
        """Raises SourceError where it is of another commit, or is the file and names none."""
        if others := sorted(self.commits - {expected}):
            detail = f"the Hub answered with commit {quoted(others[0])}, not {expected}"
            raise SourceError(Reason.COMMIT_MOVED, detail)
        if not self.commits and not self.redirects:
            detail = "the answer names no commit (X-Repo-Commit): is a proxy in the way?"
            raise SourceError(Reason.BAD_RESPONSE, detail)

    def upto(self, stop: int) -> bytes:
        """The first `stop` bytes of the body; fewer where it is shorter."""
        while len(self._data) < stop:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._data += piece
            self._count(len(piece))
            self._keep_up()
        with memoryview(self._data) as data:  # a slice of the array would be copied once more
            return bytes(data[:stop])

    def _keep_up(self) -> None:
        """Raise PassingError where the body is slow; pieces may be empty, without end."""
        self._read += 1
        size = len(self._data)
        if self.age > self._within + size / _SLOWEST:
            detail = f"{self.host} sends too slowly: {size:,} bytes"
            raise PassingError(Reason.TIMED_OUT, f"{detail} in {self._within:.0f} s and more")
        if self._read > _MOST_PIECES + size / _CRUMB:
            detail = f"{self.host} sends {size:,} bytes in more than {self._read - 1:,} pieces"
            raise PassingError(Reason.BAD_RESPONSE, detail)


# Bytes up to which a file is read from its start where the server does not know ranges: the
# longest safetensors header. The directory of a torch file of 7 GB lies behind all of its data.
_MOST_SKIPPED = MAX_HEADER + LENGTH_BYTES

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")


def whole_body(limit: int, name: str, size: int | None = None) -> Callable[[Answer], bytes]:
    """Takes a whole body of at most `limit` bytes, and of `size`, if the listing says so."""

    def take(answer: Answer) -> bytes:
        if answer.partial:
            raise SourceError(Reason.BAD_RESPONSE, f"{answer.host} sent only a part of {name}")
        content = answer.upto(limit + 1)
        if len(content) > limit:
            raise too_large(name, "more", limit)
        if size not in {None, len(content)}:
            detail = f"{answer.host} sent {len(content):,} bytes of {quoted(name)}"
            raise PassingError(Reason.BAD_RESPONSE, f"{detail}, which has {size:,}")
        return content

    return take


def part_of_file(
    file: RepoFile, span: Span, end: Callable[[bytes, int | None], int] | None = None
) -> Callable[[Answer], Received]:
    """Takes the span of a 206, or as much of it as the file has.

    A 200 ignores the range: the header is taken of it, up to its `end`, and nothing without an end.
    """

    def take(answer: Answer) -> Received:
        size = _size(answer, file, span)
        begins = span.start if answer.partial else 0  # the body, in the file
        stop = span.stop
        if not answer.partial:
            if end is None or stop > _MOST_SKIPPED:
                whole = f"{answer.host} sends the whole of {quoted(file.name)}"
                where = f"the part at byte {span.start:,} is too far from its start to wait for"
                detail = f"{whole} where a part is asked for: {where}"
                raise SourceError(Reason.BAD_RESPONSE, detail)
            if span.start == 0:
                stop = max(stop, end(answer.upto(stop), size))
        stop = stop if size is None else min(stop, size)
        data = answer.upto(stop - begins)[span.start - begins :]
        if len(data) != stop - span.start:
            detail = f"{answer.host} sent {len(data):,} bytes of {stop - span.start:,} asked for"
            raise PassingError(Reason.BAD_RESPONSE, detail)
        return Received(data, size)

    return take


def _size(answer: Answer, file: RepoFile, span: Span) -> int | None:
    """The whole file's size, on which the listing and every header of the answer must agree."""
    told = _total(answer, span) if answer.partial else answer.length
    claims = {file.size, answer.linked_size, told}
    sizes = sorted(size for size in claims if size is not None)
    if len(sizes) > 1:
        detail = f"{answer.host} and the Hub disagree on the size of {quoted(file.name)}"
        raise PassingError(
            Reason.BAD_RESPONSE, f"{detail}: {', '.join(f'{size:,}' for size in sizes)} bytes"
        )
    return sizes[0] if sizes else None


def _total(answer: Answer, span: Span) -> int | None:
    """The size in a Content-Range, which must be of the very span that was asked for."""
    given = answer.headers.get("content-range", "")
    found = _CONTENT_RANGE.fullmatch(given)
    total = whole_number(found[3]) if found else None
    last = (span.stop if total is None else min(span.stop, total)) - 1
    if not found or (int(found[1]), int(found[2])) != (span.start, last):
        detail = f"{answer.host} was asked for {span.http_range} and sent {quoted(given)}"
        raise PassingError(Reason.BAD_RESPONSE, detail)
    return total


def too_large(name: str, size: str, limit: int) -> SourceError:
    detail = f"{quoted(name)} has {size} bytes; {limit:,} are the most that are read"
    return SourceError(Reason.TOO_LARGE, detail)


# --- refusals -------------------------------------------------------------------------------------


_UNAUTHORIZED, _OF_A_PROXY, _TOO_MANY, _LEGAL = 401, 407, 429, 451
_FORBIDDEN = frozenset((_UNAUTHORIZED, 403))
_LEAST_ERROR = 400
_SERVER_FAULTS = range(500, 600)
_PASSING = frozenset((408, _TOO_MANY, *_SERVER_FAULTS))
_PHRASES = {one.value: one.phrase for one in HTTPStatus}

_WITH_TOKEN = "(hf auth login, or --token)"  # noqa: S105 - a hint

# What the Hub's X-Error-Code says. A test holds these, and the two messages below, to what
# huggingface_hub's hf_raise_for_status raises, which takes 0.1 s to import.
_BY_CODE = {
    "GatedRepo": (
        Reason.GATED,
        f"{{id}} is gated: accept its licence at {{page}}, then give your token {_WITH_TOKEN}",
    ),
    "RevisionNotFound": (Reason.NO_REVISION, "{id} has no revision {revision}"),
    "EntryNotFound": (Reason.BAD_RESPONSE, "a file that {id} lists is not there{told}"),
}
_NOT_FOUND = (
    Reason.NOT_FOUND,
    "the Hub shows no model {id}: check the spelling; a private model needs a token " + _WITH_TOKEN,
)
_DISABLED = (Reason.DISABLED, "{id} is disabled on the Hub{told}")
_DENIED = (
    Reason.DENIED,
    (
        "the Hub refused access to {id} with {status}{told}: check the token (hf auth whoami); "
        "HF_HUB_DISABLE_IMPLICIT_TOKEN=1 asks without one"
    ),
)
_AT_A_PROXY = (
    Reason.DENIED,
    "a proxy asks who you are ({status}): put a user and a password into its address, HTTP_PROXY",
)
_OTHER = (Reason.BAD_RESPONSE, "the Hub answered {status} for {id}{told}")
_DISABLED_MESSAGE = "Access to this resource is disabled."
_BAD_TOKEN_MESSAGE = "Invalid credentials in Authorization header"  # noqa: S105 - a message
_OF_A_MODEL = ("/api/models/", "/resolve/")  # in the path of what is asked of one


def refusal_error(model: HubModel, answer: Answer, body: bytes, *, by_hub: bool) -> SourceError:
    """The error for an answer that is neither the file nor a redirect to it."""
    status = answer.status
    if status in _PASSING:
        return _passing(answer)
    if not by_hub:  # a signed address that has run out, perhaps: the Hub signs another
        detail = f"{answer.host}, to which the Hub redirects, answered {status}"
        return PassingError(Reason.BAD_RESPONSE, detail)
    if status == _LEGAL:
        return SourceError(Reason.DISABLED, f"{model.id} is not available for legal reasons")
    if status < _LEAST_ERROR:
        detail = f"{answer.host} answered {status}, expected 200 or 206"
        return SourceError(Reason.BAD_RESPONSE, detail)
    said = answer.headers.get("x-error-message", "")
    reason, sentence = _refusal(answer, said)
    told = said or _error_in(body)
    detail = sentence.format(
        id=model.id,
        page=f"{constants.ENDPOINT}/{model.id}",
        revision=quoted(model.revision or "main"),
        status=status,
        told=f" ({quoted(told)})" if told else "",
    )
    return SourceError(reason, detail)


def _refusal(answer: Answer, said: str) -> tuple[Reason, str]:
    """The reason of a refusal of the Hub, and a sentence for it."""
    status, code = answer.status, answer.headers.get("x-error-code", "")
    if code in _BY_CODE:
        return _BY_CODE[code]
    if said == _DISABLED_MESSAGE:
        return _DISABLED
    unseen = status == _UNAUTHORIZED and said != _BAD_TOKEN_MESSAGE  # a private one, perhaps
    of_model = any(part in answer.url.path for part in _OF_A_MODEL)  # and not the list of them
    if code == "RepoNotFound" or (unseen and of_model):
        return _NOT_FOUND
    if status == _OF_A_PROXY:
        return _AT_A_PROXY
    return _DENIED if status in _FORBIDDEN else _OTHER


def _error_in(body: bytes) -> str:
    """Return the error message in the body of a refusal, which can be anything; "" if none."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    error = parsed.get("error") if isinstance(parsed, dict) else None
    return error if isinstance(error, str) else ""


def _passing(answer: Answer) -> SourceError:
    status, host = answer.status, answer.host
    wait = asked_wait(status, answer.headers)
    if status == _TOO_MANY:
        reason, detail = Reason.RATE_LIMITED, f"{host} answered 429, too many requests"
    else:
        reason = Reason.SERVER_ERROR if status in _SERVER_FAULTS else Reason.TIMED_OUT
        detail = f"{host} answered {status} {_PHRASES.get(status, '')}".rstrip()
    if wait is not None and wait > WINDOW:
        return SourceError(reason, f"{detail}, and asks to come back in {wait:.0f} s")
    return PassingError(reason, detail, wait)
