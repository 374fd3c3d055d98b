"""What an error, or a missing answer, of a server means: one table from errors to Reasons."""

from http import HTTPStatus
from typing import Protocol
from urllib.parse import urlsplit

from auditor.downloader.client import Reply
from auditor.downloader.model_argument import HubModel
from auditor.downloader.retry import WINDOW, PassingError, asked_wait
from auditor.downloader.transport import (
    BadAddressError,
    BrokenAnswerError,
    TooLateError,
    TransportError,
    UnknownHostError,
    UntrustedCertificateError,
)
from auditor.errors import Reason, SourceError, UsageError
from auditor.messages import quoted

_TOO_MANY = 429
_SERVER_FAULTS = range(500, 600)
_PASSING = frozenset((408, _TOO_MANY, *_SERVER_FAULTS))
_LEGAL = 451

OFFLINE = "the Hub is not asked while HF_HUB_OFFLINE is set"


class RefusalErrorMaker(Protocol):
    """Makes the error for an answer that is neither the file nor a redirect to it."""

    def __call__(
        self, model: HubModel, reply: Reply, body: bytes, *, by_hub: bool
    ) -> SourceError: ...


def brief_refusal(model: HubModel, reply: Reply, body: bytes, *, by_hub: bool) -> SourceError:  # noqa: ARG001 - a RefusalErrorMaker
    """The error for a caller that shows none; a full one takes 0.1 s, to load huggingface_hub."""
    return SourceError(Reason.BAD_RESPONSE, f"{reply.address.host} answered {reply.status}")


def refusal_error(model: HubModel, reply: Reply, body: bytes, *, by_hub: bool) -> SourceError:
    """The error for an answer that is neither the file nor a redirect to it."""
    status = reply.status
    if status in _PASSING:
        return _passing(reply)
    if not by_hub:  # a signed address that has run out, perhaps: the Hub signs another
        detail = f"{reply.address.host}, to which the Hub redirects, answered {status}"
        return PassingError(Reason.BAD_RESPONSE, detail)
    if status == _LEGAL:
        return SourceError(Reason.DISABLED, f"{model.id} is not available for legal reasons")
    from auditor.downloader.hub_errors import hub_refusal  # noqa: PLC0415 - 70 ms, only after a refusal

    if found := hub_refusal(model, reply, body):
        return found
    detail = f"{reply.address.host} answered {status}, expected 200 or 206"
    return SourceError(Reason.BAD_RESPONSE, detail)


def no_answer_error(url: str, error: TransportError) -> SourceError | UsageError:
    """The error for a request that got no answer, or lost it half-way."""
    if isinstance(error, BadAddressError):
        return UsageError(f"{quoted(url)} cannot be asked for: {error}")
    host = urlsplit(url).hostname
    match error:
        case UnknownHostError():
            detail = f"{host} cannot be found ({error}): is this machine on the network?"
            return SourceError(Reason.UNREACHABLE, detail)
        case UntrustedCertificateError():
            detail = f"{host} shows a certificate that is not trusted: {error}"
            return SourceError(Reason.UNREACHABLE, detail)
        case TooLateError():
            return PassingError(Reason.TIMED_OUT, f"{host} did not answer in time")
        case BrokenAnswerError():
            return PassingError(Reason.BAD_RESPONSE, f"{host} broke off its answer: {error}")
        case _:
            return PassingError(Reason.UNREACHABLE, f"no connection to {host}: {error}")


def _passing(reply: Reply) -> SourceError:
    status, host = reply.status, reply.address.host
    wait = asked_wait(status, reply.headers)
    if status == _TOO_MANY:
        reason, detail = Reason.RATE_LIMITED, f"{host} answered 429, too many requests"
    else:
        reason = Reason.SERVER_ERROR if status in _SERVER_FAULTS else Reason.TIMED_OUT
        detail = f"{host} answered {status} {_phrase(status)}".rstrip()
    if wait is not None and wait > WINDOW:
        return SourceError(reason, f"{detail}, and asks to come back in {wait:.0f} s")
    return PassingError(reason, detail, wait)


def _phrase(status: int) -> str:
    """What the standard calls it; nothing where it has no name for it."""
    return next((known.phrase for known in HTTPStatus if known == status), "")
