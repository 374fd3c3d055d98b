"""The meaning of a server's refusal: one table from statuses and error codes to Reasons."""

import json
from http import HTTPStatus

from huggingface_hub import constants

from auditor.downloader.answers import Answer
from auditor.downloader.model_argument import HubModel
from auditor.downloader.retry import WINDOW, PassingError, asked_wait
from auditor.errors import Reason, SourceError
from auditor.messages import quoted

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


def require_online() -> None:
    """Raise SourceError where HF_HUB_OFFLINE forbids to ask the Hub."""
    if constants.is_offline_mode():
        raise SourceError(Reason.OFFLINE, "the Hub is not asked while HF_HUB_OFFLINE is set")


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
