"""The values that all HTTP modules share: addresses, time-outs in seconds, numbers in headers."""

from huggingface_hub import constants
from pyreqwest.http import Url

_DIGITS = 19  # of a header's number; more than any file has bytes


def plain_url(text: str, base: Url | None = None) -> Url:
    """An address, read as browsers do (WHATWG), without a user or a fragment.

    With a base, resolve the text as a redirect from it. Raise ValueError if it is no address.
    """
    url = base.join(text) if base else Url(text)
    if not url.has_host:
        return url
    return url.with_username("").with_password(None).with_fragment(None)


def patience() -> float:
    """Seconds for the headers of an answer, and for each read of a body, as huggingface_hub has."""
    return float(constants.HF_HUB_DOWNLOAD_TIMEOUT)


def whole_number(text: str | None) -> int | None:
    """A header's value as a number; None if it is not a number, or absurdly long."""
    return (
        int(text) if text and text.isascii() and text.isdecimal() and len(text) < _DIGITS else None
    )
