"""What a refusal of the Hub means: huggingface_hub distinguishes the kinds."""

import json

import httpx2
from huggingface_hub import constants, hf_raise_for_status
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from auditor.downloader.client import Reply
from auditor.downloader.model_argument import HubModel
from auditor.errors import Reason, SourceError
from auditor.messages import quoted

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


def hub_refusal(model: HubModel, reply: Reply, body: bytes) -> SourceError | None:
    """The error for a refusal of the Hub; None: huggingface_hub sees none in it."""
    try:
        hf_raise_for_status(_reduced(reply, body))
    except HfHubHTTPError as error:
        return _by_kind(model, reply.status, error)
    return None


def _reduced(reply: Reply, body: bytes) -> httpx2.Response:
    """The refusal, reduced to what distinguishes the kinds: a body can be anything."""
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
