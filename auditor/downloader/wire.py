"""What carries a request to a server and its answer back: addresses, replies, and the contract."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol, Self

import httpx2
from huggingface_hub import constants

_PORTS = {"http": 80, "https": 443}
_LAST_PORT = 65535

# An address that is what it looks like. Any other (a user, a name beyond ASCII, dots to climb by)
# is httpx2's to read, which takes 40 us; these are nearly all, and take two.
_PATH = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*"
_PLAIN = re.compile(rf"(https?)://([a-z0-9][a-z0-9.-]*)(?::([1-9][0-9]{{0,4}}))?(/{_PATH})")
_PLAIN_PATH = re.compile(rf"/(?!/){_PATH}")
_CLIMBS = "/."


class Address(NamedTuple):
    """Where a request goes, as it is put on the wire; a user or a fragment is no part of it."""

    scheme: str
    host: str
    port: int  # 0: of a scheme that has none known here
    target: str  # path and query

    @classmethod
    def of(cls, url: str) -> Self:
        """Raises httpx2.InvalidURL for what is none."""
        plain = _PLAIN.fullmatch(url)
        if plain and _CLIMBS not in url:
            scheme, host, port, target = plain.groups()
            number = int(port) if port else _PORTS[scheme]
            if number <= _LAST_PORT:
                return cls(scheme, host, number, target)
        return cls._read(httpx2.URL(url))

    @classmethod
    def _read(cls, url: httpx2.URL) -> Self:
        port = url.port or _PORTS.get(url.scheme, 0)
        return cls(url.scheme, url.raw_host.decode("ascii"), port, url.raw_path.decode("ascii"))

    def joined(self, location: str) -> Self:
        """The address that a redirect names; raises httpx2.InvalidURL where it names none."""
        if _PLAIN_PATH.fullmatch(location) and _CLIMBS not in location:
            return self._replace(target=location)
        if _PLAIN.fullmatch(location):
            return self.of(location)
        return self._read(httpx2.URL(self.url).join(location))

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
        """The body as it comes; raises what httpx2 raises where it breaks off."""

    def close(self) -> None:
        """No more of the body is wanted."""


class Wire(Protocol):
    """Carries requests; called from several threads."""

    def ask(self, address: Address, headers: Mapping[str, str]) -> Reply:
        """The answer to a GET, a redirect being one: headers within `grace`, or a time-out.

        Raises what httpx2 raises where there is no answer.
        """


def patience() -> float:
    """Seconds for each single read, as huggingface_hub has them."""
    return float(constants.HF_HUB_DOWNLOAD_TIMEOUT)


def grace() -> float:
    """Seconds for finding, connecting and the headers; and before a body's pace counts."""
    return 3.0 * patience()
