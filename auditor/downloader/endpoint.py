"""The Hub that is asked: HF_ENDPOINT, as huggingface_hub has it."""

from functools import cache

from huggingface_hub import constants

from auditor.downloader.transport import Address, BadAddressError
from auditor.errors import UsageError
from auditor.messages import quoted


def endpoint() -> str:
    """HF_ENDPOINT; raises UsageError where nothing can be asked for there."""
    given: str = constants.ENDPOINT
    _ = asked_origin(given)
    return given


@cache
def asked_origin(given: str) -> tuple[str, str]:
    """Scheme and netloc of an endpoint; raises UsageError for what is not an address."""
    why = ""
    try:
        address = Address.of(given)
    except BadAddressError as error:
        why = f" ({error})"
    else:
        if address.scheme in {"http", "https"} and given.isprintable():
            return address.scheme, address.netloc
    raise UsageError(f"HF_ENDPOINT is {quoted(given)}, expected an http address{why}")
