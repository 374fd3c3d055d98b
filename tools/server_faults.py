"""Servers that misbehave, each met by one `audit`.

`PYTHONPATH=tests python tools/server_faults.py` prints of each kind the exit code, the seconds and
the memory beyond that of a plain audit.
"""

import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from support import forking
from support.hub import (
    Drip,
    EndlessBody,
    EndlessHeaders,
    Fault,
    Header,
    Hub,
    RedirectTo,
    Reset,
    Says,
    ServerError,
    Stall,
    TooMany,
    WholeFile,
    WrongJson,
)
from support.raw_server import raw_server
from support.stopping import environment
from support.sweep_models import healthy

MODEL = "org/name"
_API, _CONFIG, _WEIGHTS = "/api/*", "*config.json", "*safetensors"
_DIGITS = "9" * 5000


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fault, where it is met, and the exit code that it ends with."""

    fault: Fault
    path: str = "*"
    code: int = 3


_OK = b"HTTP/1.1 200 OK\r\n"
# Those that may cost time or memory, and one of each other kind: test_hub_misbehaving.py has more.
FAULTS: Mapping[str, Case] = {
    "busy, with a page of 50 MB": Case(fault=ServerError(status=500, size=50_000_000)),
    "too many requests, in 20 digits": Case(fault=TooMany(reset=10**19)),
    "a limit of 5,000 digits": Case(
        fault=Says(status=429, headers=(("RateLimit", f'"api";r=0;t={_DIGITS}'),))
    ),
    "a limit of 5,000 digits, and all is well": Case(
        fault=Header(name="RateLimit", value=f'"api";r={_DIGITS};t=1'), code=0
    ),
    "connections are reset": Case(fault=Reset()),
    "silence in the body": Case(fault=Stall(after=3)),
    "a drip in the weights": Case(fault=Drip(seconds=0.5), path=_WEIGHTS),
    "ranges are ignored": Case(fault=WholeFile(), code=0),
    "a redirect with a body of 50 MB": Case(
        fault=RedirectTo(size=50_000_000), path=_WEIGHTS, code=0
    ),
    "a listing without end": Case(fault=EndlessBody(), path=_API),
    "a config without end": Case(fault=EndlessBody(chunked=True), path=_CONFIG),
    "headers without end": Case(fault=EndlessHeaders()),
    "JSON of another kind": Case(fault=WrongJson(value=[[]] * 9), path=_API),
}


def _without_end(piece: bytes) -> Iterator[bytes]:
    """Five megabytes a second: enough to fill a memory, and no processor of two."""
    while True:
        yield piece
        time.sleep(len(piece) / 5e6)


Pieces = Callable[[], Iterable[bytes | None]]
RAW: Mapping[str, Pieces] = {
    "another protocol": lambda: (b"HTTP/1.1 101 X\r\nUpgrade: y\r\n\r\n", None),
    "100 Continue without end": lambda: _without_end(b"HTTP/1.1 100 X\r\n\r\n" * 1000),
    "a length and chunks": lambda: (
        _OK + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        None,
    ),
    "no HTTP": lambda: (b"SSH-2.0-OpenSSH_9.2\r\n", None),
    "nothing": lambda: (None,),
    "chunks of a byte without end": lambda: itertools.chain(
        (_OK + b"Transfer-Encoding: chunked\r\n\r\n",), _without_end(b"1\r\n{\r\n" * 1000)
    ),
}


@dataclass(frozen=True, kw_only=True)
class Met:
    """What came of one audit."""

    code: int
    said: str
    seconds: float
    memory: int  # bytes, at most


def met(name: str, folder: Path, **env: str) -> Met:
    """One audit of a server with that fault; "" is one with none."""
    if name in RAW:
        with raw_server() as server:
            server.pieces[""] = RAW[name]
            return _audited(f"http://127.0.0.1:{server.server_address[1]}", folder, env)
    with Hub() as hub:
        hub.add(MODEL, healthy(1))
        if name:
            hub.misbehave(fault=FAULTS[name].fault, path=FAULTS[name].path)
        return _audited(hub.url, folder, env)


def expected_code(name: str) -> int:
    return FAULTS[name].code if name in FAULTS else 3


def _audited(url: str, folder: Path, env: Mapping[str, str]) -> Met:
    since = time.monotonic()
    variables = {**environment(url, folder), **env}
    ended = forking.run((MODEL, "--source", "hub"), env=variables, seconds=300)
    text = (ended.stdout + ended.stderr).decode()
    seconds = time.monotonic() - since
    return Met(code=ended.code, said=text, seconds=seconds, memory=1024 * ended.peak)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = met("", folder).memory
        for fault in (*FAULTS, *RAW):
            found = met(fault, folder)
            more = (found.memory - plain) / 2**20
            sys.stdout.write(f"{fault:42}{found.code:3}{found.seconds:7.1f} s{more:7.1f} MiB\n")


if __name__ == "__main__":
    main()
