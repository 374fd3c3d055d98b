"""What a server's refusal, or its silence, means: one table from errors to Reasons."""

import json
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx2
from huggingface_hub import constants, hf_raise_for_status
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from auditor.containers.words import quoted
from auditor.downloader.patience import WINDOW, PassingError, asked_wait
from auditor.downloader.request import HubModel
from auditor.downloader.wire import Reply
from auditor.errors import Reason, SourceError, UsageError

_TOO_MANY = 429
_SERVER_FAULTS = range(500, 600)
_PASSING = frozenset((408, _TOO_MANY, *_SERVER_FAULTS))
_LEGAL = 451
_FORBIDDEN = frozenset((401, 403, 407))

_DENIED = (
    "the Hub refused access to {id} with {status}{told}: check the token (hf auth whoami); "
    "HF_HUB_DISABLE_IMPLICIT_TOKEN=1 asks without one"
)
# In this order: a GatedRepoError is a RepositoryNotFoundError too.
_KINDS = (
    (
        GatedRepoError,
        Reason.GATED,
        (
            "{id} is gated: accept its licence at {page}, then give your token "
            "(hf auth login, or --token)"
        ),
    ),
    (
        RepositoryNotFoundError,
        Reason.NOT_FOUND,
        (
            "the Hub shows no model {id}: check the spelling; a private model needs a token "
            "(hf auth login, or --token)"
        ),
    ),
    (DisabledRepoError, Reason.DISABLED, "{id} is disabled on the Hub{told}"),
    (RevisionNotFoundError, Reason.NO_REVISION, "{id} has no revision {revision}"),
    (EntryNotFoundError, Reason.BAD_RESPONSE, "a file that {id} lists is not there{told}"),
)

OFFLINE = "the Hub is not asked while HF_HUB_OFFLINE is set"


def refused(model: HubModel, reply: Reply, body: bytes, *, by_hub: bool) -> SourceError:
    """The error for an answer that is neither the file nor a redirect to it."""
    status = reply.status
    if status in _PASSING:
        return _passing(reply)
    if not by_hub:  # a signed address that has run out, perhaps: the Hub signs another
        detail = f"{reply.address.host}, to which the Hub redirects, answered {status}"
        return PassingError(Reason.BAD_RESPONSE, detail)
    if status == _LEGAL:
        return SourceError(Reason.DISABLED, f"{model.id} is not available for legal reasons")
    try:
        hf_raise_for_status(_reduced(reply, body))
    except HfHubHTTPError as error:
        return _by_kind(model, status, error)
    detail = f"{reply.address.host} answered {status} where 200 or 206 was due"
    return SourceError(Reason.BAD_RESPONSE, detail)


def failed(url: str, error: Exception) -> SourceError | UsageError:
    """The error for a request that got no answer, or lost it half-way."""
    host = urlsplit(url).hostname or "the server"
    if hopeless := next(filter(None, (_hopeless(host, cause) for cause in _causes(error))), None):
        return SourceError(Reason.UNREACHABLE, hopeless)
    match error:
        case OfflineModeIsEnabled():
            return SourceError(Reason.OFFLINE, OFFLINE)
        case httpx2.UnsupportedProtocol() | httpx2.InvalidURL() | httpx2.LocalProtocolError():
            return UsageError(f"{quoted(url)} cannot be asked for: {error}")
        case httpx2.TimeoutException():
            return PassingError(Reason.TIMED_OUT, f"{host} did not answer in time")
        case httpx2.RemoteProtocolError():
            return PassingError(Reason.BAD_RESPONSE, f"{host} broke off its answer: {error}")
        case _:
            return PassingError(Reason.UNREACHABLE, f"no connection to {host}: {error}")


def _hopeless(host: str, cause: BaseException) -> str | None:
    """What no further attempt would mend."""
    if isinstance(cause, socket.gaierror):
        return f"{host} cannot be found ({cause.strerror}): is this machine on the network?"
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"{host} shows a certificate that is not trusted: {cause.verify_message}"
    return None


def _passing(reply: Reply) -> SourceError:
    status, host = reply.status, reply.address.host
    wait = asked_wait(status, reply.headers)
    if status == _TOO_MANY:
        reason, detail = Reason.RATE_LIMITED, f"{host} answered 429, too many requests"
    else:
        reason = Reason.SERVER_ERROR if status in _SERVER_FAULTS else Reason.TIMED_OUT
        detail = f"{host} answered {status} {reply.phrase}".rstrip()
    if wait is not None and wait > WINDOW:
        return SourceError(reason, f"{detail}, and asks to come back in {wait:.0f} s")
    return PassingError(reason, detail, wait)


def _reduced(reply: Reply, body: bytes) -> httpx2.Response:
    """The refusal with the little that tells one kind from another: a body can be anything."""
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError):
        parsed = None
    error = parsed.get("error") if isinstance(parsed, dict) else None
    kept = ("x-error-code", "x-error-message")
    headers = {name: reply.headers[name] for name in kept if name in reply.headers}
    content = json.dumps({"error": error} if isinstance(error, str) else {}).encode()
    request = httpx2.Request("GET", reply.address.url)
    return httpx2.Response(reply.status, headers=headers, content=content, request=request)


def _by_kind(model: HubModel, status: int, error: HfHubHTTPError) -> SourceError:
    told = f" ({quoted(error.server_message)})" if error.server_message else ""
    reason, sentence = Reason.BAD_RESPONSE, "the Hub answered {status} for {id}{told}"
    if status in _FORBIDDEN:
        reason, sentence = Reason.DENIED, _DENIED
    for kind, kind_reason, kind_sentence in _KINDS:
        if isinstance(error, kind):
            reason, sentence = kind_reason, kind_sentence
            break
    page, revision = f"{constants.ENDPOINT}/{model.id}", quoted(model.revision or "main")
    detail = sentence.format(id=model.id, page=page, revision=revision, status=status, told=told)
    return SourceError(reason, detail)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
