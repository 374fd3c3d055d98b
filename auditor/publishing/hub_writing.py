"""Write to the Hub by huggingface_hub: the repository, the token, and errors in one line."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from auditor.downloader.hub_settings import endpoint, require_online, usable_token
from auditor.downloader.model_argument import parse_id
from auditor.errors import AuditError, PublishError, SourceError, UsageError
from auditor.messages import printable, quoted
from auditor.redaction import redacted

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_BY_STATUS = {
    401: "the Hub does not accept the token",
    403: "the token may not write there, expected one with write access",
    404: "there is no such repository, revision or discussion that this token may see",
}
_SERVER_ERROR = 500  # the lowest status of a failure of the Hub
_LONGEST = 300  # characters of an answer in a message


def require_repository(requested: str) -> str:
    """Return the id of a repository; raise UsageError unless it is ORG/NAME."""
    model = parse_id(requested, "not the id of a repository")
    if "/" not in model.id or model.revision is not None or model.tag is not None:
        detail = "expected ORG/NAME"
        if model.revision is not None:
            detail += "; --revision names the branch"
        raise UsageError(f"{quoted(requested)} is not the id of a repository: {detail}")
    return model.id


def hub_api(token: str | None, *, reads_only: bool = False) -> "HfApi":
    """Return the library's client; raise PublishError if it may write and there is no token."""
    try:
        require_online()
        usable = usable_token(token)
    except SourceError as error:
        raise PublishError(str(error)) from None
    if usable is None and not reads_only:
        raise PublishError("no access token is known: set HF_TOKEN, or run hf auth login")
    address = endpoint()
    from huggingface_hub import HfApi  # noqa: PLC0415 - 0.1 s

    for handler in logging.getLogger("huggingface_hub").handlers:  # it prints headers of the server
        handler.addFilter(_escape)
    return HfApi(endpoint=address, token=usable or False, library_name="hf-audit")


def _escape(record: logging.LogRecord) -> bool:
    record.msg, record.args = printable(record.getMessage()), ()
    return True


@contextmanager
def hub_errors(repository: str, doubt: str = "") -> Iterator[None]:
    """Turn each error of huggingface_hub in the block into a PublishError of one line.

    The library raises a KeyError, a TypeError or another error of Python if the answer of a server
    has another shape than the Hub's. `doubt` follows if the Hub may have done what it was asked
    without saying so.
    """
    from httpx2 import HTTPError  # noqa: PLC0415 - comes with huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError  # noqa: PLC0415 - 0.1 s

    try:
        yield
    except HfHubHTTPError as error:
        status = error.response.status_code
        said = _BY_STATUS.get(status, f"the Hub answered {status}")
        unknown = doubt if status >= _SERVER_ERROR else ""
        raise PublishError(f"{repository}: {said} ({_in_a_line(error)}){unknown}") from None
    except SourceError as error:
        raise PublishError(f"nothing is committed: {error}") from None
    except (AuditError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - an answer may have any shape
        if isinstance(error.__cause__, SourceError):
            raise PublishError(f"nothing is committed: {error.__cause__}") from None
        causes = dict.fromkeys(map(_in_a_line, filter(None, (error, error.__cause__))))
        kind = "no answer from the Hub" if isinstance(error, HTTPError) else type(error).__name__
        if not isinstance(error, HTTPError | OSError | RuntimeError | ValueError):
            kind = f"the answer of {endpoint()} is not one of the Hub ({kind})"
        raise PublishError(f"{repository}: {kind}: {': '.join(causes)}{doubt}") from None


def _in_a_line(error: BaseException) -> str:
    said = getattr(error, "server_message", None) or str(error) or type(error).__name__
    return " ".join(redacted(str(said)).split())[:_LONGEST]
