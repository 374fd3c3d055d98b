"""What an answer says of the rate limit, as huggingface_hub reads it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from huggingface_hub.utils import RateLimitInfo  # type: ignore[attr-defined] # no __all__


def rate_limit(headers: Mapping[str, str]) -> "RateLimitInfo | None":
    """The window that an answer is of; None: it says nothing, as a mirror's do not."""
    if not any(name.lower() == "ratelimit" for name in headers):
        return None  # and nothing is loaded that takes 40 ms
    from huggingface_hub.utils import (  # type: ignore[attr-defined] # noqa: PLC0415
        parse_ratelimit_headers,
    )

    return parse_ratelimit_headers(headers)
