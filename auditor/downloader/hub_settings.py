"""The supported settings of huggingface_hub: endpoint, time-out, offline mode and token."""

import os
import sys
from contextlib import suppress
from pathlib import Path

from huggingface_hub import constants
from pyreqwest.http import Url

from auditor.errors import Reason, SourceError, UsageError
from auditor.messages import described, quoted
from auditor.redaction import hide, hide_user

_DAY = 24 * 60 * 60  # seconds


def plain_url(text: str, base: Url | None = None) -> Url:
    """Parse an address as browsers do (WHATWG), and remove its user and its fragment.

    With a base, resolve the text as a redirect from it. Raise ValueError if it is not an address.
    """
    url = base.join(text) if base else Url(text)
    if not url.has_host:
        return url
    return url.with_username("").with_password(None).with_fragment(None)


def time_out() -> float:
    """Return HF_HUB_DOWNLOAD_TIMEOUT: the seconds to wait for headers and each read of a body.

    Raise UsageError if it is not a number of seconds from 1 to a day.
    """
    seconds = constants.HF_HUB_DOWNLOAD_TIMEOUT
    if not 0 < seconds <= _DAY:
        observed = f"HF_HUB_DOWNLOAD_TIMEOUT is {described(seconds)}"
        raise UsageError(f"{observed}, expected 1 to {_DAY:,} seconds")
    return float(seconds)


def require_online() -> None:
    """Raise SourceError if HF_HUB_OFFLINE is set."""
    if constants.is_offline_mode():
        raise SourceError(Reason.OFFLINE, "HF_HUB_OFFLINE is set: the Hub is not asked")


def endpoint() -> str:
    """Return HF_ENDPOINT; raise UsageError if it is not an http address."""
    endpoint_url()
    return constants.ENDPOINT


def endpoint_url() -> Url:
    """Return HF_ENDPOINT as a Url; raise UsageError if the value is not an http address."""
    address: str = constants.ENDPOINT
    hide_user(address)
    why = ""
    try:
        url = plain_url(address)
    except ValueError as error:
        why = f" ({error})"
    else:
        if url.scheme in {"http", "https"} and address.isprintable():
            return url
    raise UsageError(f"HF_ENDPOINT is {quoted(address)}, expected an http address{why}")


# --- the access token -----------------------------------------------------------------------------


def usable_token(requested: str | None) -> str | None:
    """Return the token to send: `requested`, else the stored one unless a setting forbids it.

    From then on, no text that is printed or stored contains it.

    Raise SourceError if the stored token cannot be read, UsageError if it is not a valid token.
    """
    if requested is None and constants.HF_HUB_DISABLE_IMPLICIT_TOKEN:
        return None
    try:
        token = _stored_token() if requested is None else requested.strip()
    except OSError as error:
        place = quoted(constants.HF_TOKEN_PATH)
        detail = f"the stored token, {place}, cannot be read: {error.strerror or error}"
        raise SourceError(Reason.UNREADABLE, detail) from None
    if token and not (token.isascii() and token.isprintable() and " " not in token):
        raise UsageError("the token has characters that no token has; copy the whole token")
    hide(token)
    return token or None


def _stored_token() -> str:
    """Return the token that huggingface_hub's get_token returns, or "".

    The library, which imports an HTTP client in 0.1 s, is called only if it would do more than read
    a variable or a file.
    """
    if os.environ.get("HF_OIDC_RESOURCE") or "google.colab" in sys.modules:
        return _by_library()
    variable = os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN") or ""
    if token := _without_line_ends(variable):
        return token
    with suppress(FileNotFoundError):
        token = _without_line_ends(
            Path(constants.HF_TOKEN_PATH).read_text(encoding="utf-8", errors="replace")
        )
    return _by_library() if token and _may_be_refreshed() else token


def _may_be_refreshed() -> bool:
    """Whether the stored token comes from a browser login: it expires and must be renewed."""
    try:
        return b"refresh_token" in Path(constants.HF_STORED_TOKENS_PATH).read_bytes()
    except OSError:
        return False


def _by_library() -> str:
    endpoint()  # huggingface_hub's utilities cannot be imported if the endpoint is wrong
    from huggingface_hub import get_token  # noqa: PLC0415 - 0.1 s
    from huggingface_hub.errors import HfHubHTTPError, OIDCError  # noqa: PLC0415 - likewise

    try:
        return get_token() or ""
    except (OIDCError, HfHubHTTPError) as error:
        raise SourceError(Reason.DENIED, f"the token cannot be obtained: {error}") from None
    except Exception as error:  # noqa: BLE001 - a server's answer may have any shape
        observed = f"the answer has another form ({type(error).__name__})"
        raise SourceError(Reason.DENIED, f"the token cannot be obtained: {observed}") from None


def _without_line_ends(token: str) -> str:
    return token.replace("\r", "").replace("\n", "").strip()
