"""What carries a request to a server and its answer back: addresses, replies, and the contract."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol, Self

from huggingface_hub import constants

from auditor.messages import quoted

_PORTS = {"http": 80, "https": 443}
_LAST_PORT = 65535

# An address that is what it looks like. Any other (a user, a name beyond ASCII, dots to climb by)
# is httpx2's to read, which takes 40 us, and 35 ms to load; these are nearly all, and take two.
_PATH = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*"
_PLAIN = re.compile(rf"(https?)://([a-z0-9][a-z0-9.-]*)(?::([1-9][0-9]{{0,4}}))?(/{_PATH})")
_PLAIN_PATH = re.compile(rf"/(?!/){_PATH}")
_CLIMBS = "/."


class TransportError(Exception):
    """No answer, or a part of one: no connection was made, or it broke."""


class TooLateError(TransportError):
    """It did not come in time."""


class BrokenAnswerError(TransportError):
    """It is not HTTP, or ends too early."""


class BadAddressError(TransportError):
    """Nothing can be asked for there."""


# What to say of status 101; each library words it differently.
UPGRADE = "it changes to another protocol, which the request did not ask for"


class Address(NamedTuple):
    """Where a request goes, as it is put on the wire, without a user or a fragment."""

    scheme: str
    host: str
    port: int  # 0: of a scheme that has none known here
    target: str  # path and query

    @classmethod
    def of(cls, url: str) -> Self:
        """Raises BadAddressError for what is not an address."""
        plain = _PLAIN.fullmatch(url)
        if plain and _CLIMBS not in url:
            scheme, host, port, target = plain.groups()
            number = int(port) if port else _PORTS[scheme]
            if number <= _LAST_PORT:
                return cls(scheme, host, number, target)
        return cls._read(url, "")

    @classmethod
    def _read(cls, url: str, base: str) -> Self:
        import httpx2  # noqa: PLC0415 - what it is spared for is said above

        try:
            read = httpx2.URL(base).join(url) if base else httpx2.URL(url)
        except httpx2.InvalidURL as error:
            raise BadAddressError(str(error)) from error
        port = read.port or _PORTS.get(read.scheme, 0)
        if port > _LAST_PORT:
            raise BadAddressError(f"Invalid port: {port}; {_LAST_PORT} is the last")
        return cls(read.scheme, read.raw_host.decode("ascii"), port, read.raw_path.decode("ascii"))

    def joined(self, location: str) -> Self:
        """The address that a redirect names; raises BadAddressError where it names none."""
        if _PLAIN_PATH.fullmatch(location) and _CLIMBS not in location:
            return self._replace(target=location)
        if _PLAIN.fullmatch(location):
            return self.of(location)
        return self._read(location, self.url)

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port

    @property
    def netloc(self) -> str:
        """Host and port, as a Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS.get(self.scheme) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.netloc}{self.target}"


class Reply(Protocol):
    """One answer: its status and headers are here, its body is still on the way."""

    address: Address
    status: int
    phrase: str
    headers: Mapping[str, str]  # names in lower case; values of one name joined by ", "

    def pieces(self) -> Iterator[bytes]:
        """The body as it comes; raises WireError where it breaks off."""

    def close(self) -> None:
        """No more of the body is wanted."""


class Transport(Protocol):
    """Carries requests; called from several threads."""

    def ask(self, address: Address, headers: Mapping[str, str], silence: float) -> Reply:
        """The answer to a GET, which may be a redirect; raises WireError if no answer comes.

        Its headers come within `grace`, and no read takes longer than `patience`, or else there is
        a time-out; after `silence` seconds if that is less.
        """


def patience() -> float:
    """Seconds for each single read, as huggingface_hub has them."""
    return float(constants.HF_HUB_DOWNLOAD_TIMEOUT)


def grace() -> float:
    """Seconds for finding, connecting and the headers; and before a body's pace counts."""
    return 1.5 * patience()


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
