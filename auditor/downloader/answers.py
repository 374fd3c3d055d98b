"""Answers of a server: read the file or span in an answer, or raise the error for a refusal.

Only the needed bytes of a body are read, within bounds, and only if the declared size is right.
Reading fails if the body is slow or arrives in tiny pieces.
"""

import re
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus

from huggingface_hub import constants
from msgspec import Struct

from auditor.bounded.json_text import decoded
from auditor.checkpoint.snapshot import RepoFile
from auditor.containers.safetensors import LENGTH_BYTES, MAX_HEADER
from auditor.downloader.client import Reply, whole_number
from auditor.downloader.headers import Received
from auditor.downloader.model_argument import HubModel, is_mirror
from auditor.downloader.retry import WINDOW, PassingError, requested_wait
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.messages import quoted
from auditor.redaction import masked
from auditor.tensors import Span

# The least speed of a body, in bytes a second, once the time for its headers has passed: 33 kbit/s,
# like a telephone modem. The HTTP library's time-outs never end a body that arrives slowly.
_SLOWEST = 4 * 1024

# The number of pieces of a body that may have any size; with more pieces, their average size must
# be at least _CRUMB bytes. Networks carry 500 bytes and more at once. A piece takes some 30 us, so
# a body of single bytes would take minutes.
_MOST_PIECES, _CRUMB = 10_000, 256

_PARTIAL = 206
_REDIRECTS = frozenset((301, 302, 303, 307, 308))


class Answer:
    """An answer to the request for a file: a redirect, a refusal, or the file itself."""

    def __init__(
        self, reply: Reply, count: Callable[[int], None], previous: "Answer | None" = None
    ) -> None:
        """Wrap a reply: `count` gets the size of each piece, `previous` is the redirect to it."""
        self.url = reply.url
        self.host = reply.url.host_str
        self.status = reply.status
        self.partial = reply.status == _PARTIAL
        self.redirects = reply.status in _REDIRECTS and "location" in reply.headers
        self.headers: Mapping[str, str] = reply.headers
        self.length = reply.length
        # The file's commits and its complete size, from all answers up to this one.
        self.commits: frozenset[str] = previous.commits if previous else frozenset()
        if "x-repo-commit" in reply.headers:  # an answer may name several
            commits = reply.headers["x-repo-commit"].split(",")
            self.commits |= {commit.strip() for commit in commits}
        self.linked_size: int | None = previous.linked_size if previous else None
        if "x-linked-size" in reply.headers:
            self.linked_size = whole_number(reply.headers["x-linked-size"])
        self._since, self._within = reply.since, reply.within
        self._count = count
        self._pieces = reply.pieces()
        self._data = bytearray()
        self._number = 0  # pieces of the body that were read

    @property
    def age(self) -> float:
        """The seconds since the request was sent."""
        return time.monotonic() - self._since

    @property
    def commit(self) -> str | None:
        """The commit of the file; None if the Hub's answers name no commit or several commits."""
        return next(iter(self.commits)) if len(self.commits) == 1 else None

    def require_commit(self, expected: str) -> bool:
        """Raise SourceError if an answer names another commit, or if the Hub itself names none.

        Return whether a mirror names none: the file's address has the commit, too.
        """
        if other_commits := sorted(self.commits - {expected}):
            detail = f"the Hub answered with commit {quoted(other_commits[0])}, expected {expected}"
            raise SourceError(Reason.COMMIT_MOVED, detail)
        is_unnamed = not self.commits and not self.redirects
        if is_unnamed and not is_mirror():
            detail = "the answer names no commit (X-Repo-Commit): is a proxy in the way?"
            raise SourceError(Reason.BAD_RESPONSE, detail)
        return is_unnamed

    def upto(self, stop: int) -> bytes:
        """Return the first `stop` bytes of the body; fewer if it is shorter."""
        while len(self._data) < stop:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._data += piece
            self._count(len(piece))
            self._require_speed()
        with memoryview(self._data) as data:  # a slice of the array would be copied once more
            return bytes(data[:stop])

    def _require_speed(self) -> None:
        """Raise PassingError if the body is slow, or has too many pieces (empty ones count)."""
        self._number += 1
        size = len(self._data)
        if self.age > self._within + size / _SLOWEST:
            detail = (
                f"{self.host} sends too slowly: {size:,} bytes in {self._within:.0f} s and more"
            )
            raise PassingError(Reason.TIMED_OUT, detail)
        if self._number > _MOST_PIECES + size / _CRUMB:
            detail = f"{self.host} sends {size:,} bytes in more than {self._number - 1:,} pieces"
            raise PassingError(Reason.BAD_RESPONSE, detail)


# The most bytes to read from a file's start if the server ignores ranges: the longest safetensors
# header. So the directory of a torch file of 7 GB, which follows the data, is not reached.
_MOST_SKIPPED = MAX_HEADER + LENGTH_BYTES

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")


def whole_body(limit: int, name: str, size: int | None = None) -> Callable[[Answer], bytes]:
    """Return a function that reads a complete body of at most `limit` bytes, or of `size` bytes.

    A token that the server repeats in it becomes asterisks. A header of weights, which may have
    12 MiB, is searched when its names are printed or stored.
    """

    def take(answer: Answer) -> bytes:
        if answer.partial:
            raise SourceError(Reason.BAD_RESPONSE, f"{answer.host} sent only a part of {name}")
        content = masked(answer.upto(limit + 1))
        if len(content) > limit:
            raise too_large(name, limit)
        if size not in {None, len(content)}:
            detail = (
                f"{answer.host} sent {len(content):,} bytes of {quoted(name)}, expected {size:,}"
            )
            raise PassingError(Reason.BAD_RESPONSE, detail)
        return content

    return take


def part_of_file(
    file: RepoFile, span: Span, end: Callable[[bytes, int | None], int] | None = None
) -> Callable[[Answer], Received]:
    """Return a function that reads the bytes of a span, fewer if the file ends within the span.

    If the server ignores the range and sends the complete file (status 200, not 206), the file is
    read from its start up to the offset that `end` returns; without an `end`, raise SourceError.
    """

    def take(answer: Answer) -> Received:
        size = _size(answer, file, span)
        body_start = span.start if answer.partial else 0  # offset in the file
        stop = span.stop
        if not answer.partial:
            if end is None or stop > _MOST_SKIPPED:
                detail = (
                    f"{answer.host} sends all of {quoted(file.name)}, expected {span.http_range}"
                )
                why = "that part is too far from the start to wait for"
                raise SourceError(Reason.BAD_RESPONSE, f"{detail}; {why}")
            if span.start == 0:
                stop = max(stop, end(answer.upto(stop), size))
        stop = stop if size is None else min(stop, size)
        data = answer.upto(stop - body_start)[span.start - body_start :]
        if len(data) != stop - span.start:
            detail = f"{answer.host} sent {len(data):,} bytes, expected {stop - span.start:,}"
            raise PassingError(Reason.BAD_RESPONSE, detail)
        return Received(data, size)

    return take


def _size(answer: Answer, file: RepoFile, span: Span) -> int | None:
    """Return the file's size if known; raise SourceError if the listing and headers disagree."""
    total = _total(answer, span) if answer.partial else answer.length
    sizes = sorted({size for size in (file.size, answer.linked_size, total) if size is not None})
    if len(sizes) > 1:
        detail = f"{answer.host} and the Hub disagree on the size of {quoted(file.name)}"
        raise PassingError(
            Reason.BAD_RESPONSE, f"{detail}: {', '.join(f'{size:,}' for size in sizes)} bytes"
        )
    return sizes[0] if sizes else None


def _total(answer: Answer, span: Span) -> int | None:
    """Return the file's size from Content-Range; raise PassingError if its range is not `span`."""
    text = answer.headers.get("content-range", "")
    match = _CONTENT_RANGE.fullmatch(text)
    total = whole_number(match[3]) if match else None
    last = (span.stop if total is None else min(span.stop, total)) - 1
    if not match or (int(match[1]), int(match[2])) != (span.start, last):
        detail = f"{answer.host} sent {quoted(text)}, expected {span.http_range}"
        raise PassingError(Reason.BAD_RESPONSE, detail)
    return total


def too_large(name: str, limit: int, size: int | None = None) -> SourceError:
    observed = f"{size:,} bytes" if size is not None else "more bytes"
    detail = f"{quoted(name)} has {observed}, expected at most {limit:,}"
    return SourceError(Reason.TOO_LARGE, detail)


# --- refusals -------------------------------------------------------------------------------------


_UNAUTHORIZED, _PROXY_UNAUTHORIZED, _TOO_MANY, _LEGAL = 401, 407, 429, 451
_FORBIDDEN = frozenset((_UNAUTHORIZED, 403))
_LEAST_ERROR = 400
_SERVER_FAULTS = range(500, 600)
_PASSING = frozenset((408, _TOO_MANY, *_SERVER_FAULTS))
_PHRASES = {status.value: status.phrase for status in HTTPStatus}

_WITH_TOKEN = "(hf auth login, or --token)"  # noqa: S105 - a hint, not a password

# The Hub's X-Error-Codes. A test compares these, and the two messages below, with what
# huggingface_hub's hf_raise_for_status raises, which takes 0.1 s to import.
_BY_CODE = {
    "GatedRepo": (
        Reason.GATED,
        f"{{id}} is gated: accept its licence at {{page}}, then give your token {_WITH_TOKEN}",
    ),
    "RevisionNotFound": (Reason.NO_REVISION, "{id} has no revision {revision}"),
    "EntryNotFound": (Reason.BAD_RESPONSE, "{id} lists a file that does not exist{detail}"),
}
_NOT_FOUND = (
    Reason.NOT_FOUND,
    "the Hub shows no model {id}: check the spelling; a private model needs a token " + _WITH_TOKEN,
)
_DISABLED = (Reason.DISABLED, "{id} is disabled on the Hub{detail}")
_DENIED = (
    Reason.DENIED,
    (
        "the Hub refused access to {id} with {status}{detail}: check the token (hf auth whoami); "
        "HF_HUB_DISABLE_IMPLICIT_TOKEN=1 asks without one"
    ),
)
_AT_A_PROXY = (
    Reason.DENIED,
    "a proxy needs a user and a password ({status}): put them into its address, HTTP_PROXY",
)
_OTHER = (Reason.BAD_RESPONSE, "the Hub answered {status} for {id}{detail}")
_DISABLED_MESSAGE = "Access to this resource is disabled."
_BAD_TOKEN_MESSAGE = "Invalid credentials in Authorization header"  # noqa: S105 - a message, not a password
_OF_A_SERVER = {
    401: Reason.DENIED,
    403: Reason.DENIED,
    404: Reason.NOT_FOUND,
    410: Reason.NOT_FOUND,
}
_MODEL_PATHS = ("/api/models/", "/resolve/")  # in the paths of requests for one model


def refusal_error(
    model: HubModel | None, answer: Answer, body: bytes, *, by_hub: bool
) -> SourceError:
    """Return the error for an answer that is neither the file nor a redirect to it.

    `model` is None for a file of a web server that is no Hub.
    """
    status = answer.status
    if status in _PASSING:
        return _passing_error(answer)
    if model is None:
        reason = _OF_A_SERVER.get(status, Reason.BAD_RESPONSE)
        detail = f"{answer.host} answered {status} for {quoted(answer.url.path)}"
        return SourceError(reason, detail)
    if not by_hub:  # a signed address may have expired: the Hub signs a new one
        detail = f"{answer.host}, to which the Hub redirects, answered {status}"
        return PassingError(Reason.BAD_RESPONSE, detail)
    if status == _LEGAL:
        return SourceError(Reason.DISABLED, f"{model.id} is not available for legal reasons")
    if status < _LEAST_ERROR:
        detail = f"{answer.host} answered {status}, expected 200 or 206"
        return SourceError(Reason.BAD_RESPONSE, detail)
    message = answer.headers.get("x-error-message", "")
    reason, sentence = _refusal(answer, message)
    server_message = message or _error_in(masked(body))
    text = sentence.format(
        id=model.id,
        page=f"{constants.ENDPOINT}/{model.id}",
        revision=quoted(model.revision or "main"),
        status=status,
        detail=f" ({quoted(server_message)})" if server_message else "",
    )
    return SourceError(reason, text)


def _refusal(answer: Answer, message: str) -> tuple[Reason, str]:
    """Return the reason why the Hub refused a request, and a sentence that explains it."""
    status, code = answer.status, answer.headers.get("x-error-code", "")
    if code in _BY_CODE:
        return _BY_CODE[code]
    if message == _DISABLED_MESSAGE:
        return _DISABLED
    is_hidden = status == _UNAUTHORIZED and message != _BAD_TOKEN_MESSAGE  # it may be private
    is_of_model = any(part in answer.url.path for part in _MODEL_PATHS)  # not the list of models
    if code == "RepoNotFound" or (is_hidden and is_of_model):
        return _NOT_FOUND
    if status == _PROXY_UNAUTHORIZED:
        return _AT_A_PROXY
    return _DENIED if status in _FORBIDDEN else _OTHER


class _Refusal(Struct):
    error: str = ""


def _error_in(body: bytes) -> str:
    """Return the error message in the body of a refusal; "" if it has no message."""
    try:
        return decoded(body, _Refusal).error
    except CheckpointError:
        return ""


def _passing_error(answer: Answer) -> SourceError:
    status, host = answer.status, answer.host
    wait = requested_wait(status, answer.headers)
    if status == _TOO_MANY:
        reason, detail = Reason.RATE_LIMITED, f"{host} answered 429, too many requests"
    else:
        reason = Reason.SERVER_ERROR if status in _SERVER_FAULTS else Reason.TIMED_OUT
        detail = f"{host} answered {status} {_PHRASES.get(status, '')}".rstrip()
    if wait is not None and wait > WINDOW:
        return SourceError(reason, f"{detail}: try again in {wait:.0f} s")
    return PassingError(reason, detail, wait)
