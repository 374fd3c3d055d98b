"""Addresses, and what can go wrong on the way to one: what any HTTP client of ours deals in."""

from collections.abc import Mapping
from typing import NamedTuple, Self

from huggingface_hub import constants
from pyreqwest.http import Url

from auditor.messages import quoted

_PORTS = {"http": 80, "https": 443}
_DIGITS = 19  # of a header's number; more than any file has bytes


class TransportError(Exception):
    """No answer, or a part of one: no connection was made, or it broke."""


class TooLateError(TransportError):
    """It did not come in time."""


class BrokenAnswerError(TransportError):
    """It is not HTTP, or ends too early."""


class BadAddressError(TransportError):
    """Nothing can be asked for there."""


class UnknownHostError(TransportError):
    """No machine has that name."""


class UntrustedCertificateError(TransportError):
    """The machine does not show that it is who it should be."""


class Address(NamedTuple):
    """Where a request goes, as it is put on the wire, without a user or a fragment."""

    scheme: str
    host: str
    port: int  # 0: of a scheme that has none known here
    target: str  # path and query

    @classmethod
    def of(cls, url: str) -> Self:
        """Read as browsers do (WHATWG); raises BadAddressError for what is not an address."""
        try:
            return cls._of(Url(url))
        except ValueError as error:
            raise BadAddressError(str(error)) from error

    def joined(self, location: str) -> Self:
        """The address that a redirect names; raises BadAddressError where it names none."""
        try:
            return self._of(Url(self.url).join(location))
        except ValueError as error:
            raise BadAddressError(str(error)) from error

    @classmethod
    def _of(cls, url: Url) -> Self:
        query = f"?{url.query_string}" if url.query_string else ""
        host, port = url.host_str or "", url.port_or_known_default or 0
        return cls(url.scheme, host, port, f"{url.path}{query}")

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def netloc(self) -> str:
        """Host and port, as a Host header has them."""
        return self.host if self.port == _PORTS.get(self.scheme) else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.target}"


def patience() -> float:
    """Seconds for the headers of an answer, and for each read of a body, as huggingface_hub has."""
    return float(constants.HF_HUB_DOWNLOAD_TIMEOUT)


def framing_fault(headers: Mapping[str, str]) -> str | None:
    """What makes it doubtful where a body ends (RFC 9112, 6.3); None: nothing.

    Parsers differ here, and a forged answer can make use of that.
    """
    encoding = headers.get("transfer-encoding")
    if encoding is None:
        return None
    if "content-length" in headers:
        return "it has both a Transfer-Encoding and a Content-Length"
    if encoding.strip().lower() != "chunked":
        return f"its Transfer-Encoding is {quoted(encoding)}, not chunked"
    return None


def whole_number(text: str | None) -> int | None:
    """A header's value as a number; None if it is not a number, or absurdly long."""
    return (
        int(text) if text and text.isascii() and text.isdecimal() and len(text) < _DIGITS else None
    )
