"""The HTTP client of all audits: it wraps reqwest, a library in Rust.

reqwest reuses connections, speaks HTTP/2 if the server does, and takes proxies and certificates
from the environment (HTTPS_PROXY, NO_PROXY, SSL_CERT_FILE and similar variables). The client also
trusts the authorities of REQUESTS_CA_BUNDLE, which companies set for other Python programs.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from pyreqwest.client import SyncClient, SyncClientBuilder
from pyreqwest.exceptions import (
    BuilderError,
    ConnectError,
    DetailedPyreqwestError,
    RequestError,
    RequestTimeoutError,
)
from pyreqwest.http import Url
from pyreqwest.request import SyncStreamRequest

from auditor.downloader.hub_settings import time_out
from auditor.downloader.retry import PassingError
from auditor.errors import Reason, SourceError, UsageError
from auditor.messages import quoted
from auditor.redaction import hide_user, redacted

# HTTP/2 windows: the bytes in flight of one stream, and of all streams of a connection. With the
# protocol's default of 64 KiB, a header of 1 MB would take a round trip for each 64 KiB.
_STREAM, _CONNECTION = 1024 * 1024, 8 * 1024 * 1024

_SWITCHING, _HTTP_1 = 101, "HTTP/1.1"
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_PROXY_SCHEMES = ("http", "https", "socks4", "socks4a", "socks5", "socks5h")
_BUNDLE = "REQUESTS_CA_BUNDLE"
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", _BUNDLE)
_MOST_OF_A_BUNDLE = 16 * 1024 * 1024  # bytes; a system's have 0.3 MB
_PEM_END = b"-----END CERTIFICATE-----"

_DIGITS = 19  # the most digits of a number in a header; no file size has more

# Substrings of the HTTP library's messages.
_NO_HOST, _CERTIFICATE, _UNKNOWN = "dns error", "invalid peer certificate: ", "UnknownIssuer"
_NO_CONNECTION = ("(Connect)", "(os error ")  # no connection, or an error of the system


class Client:
    """A client that sends requests; several threads use it.

    The main thread must not use it: Python handles no signals while compiled code waits.
    """

    def __init__(self, client: SyncClient, seconds: float) -> None:
        self._client = client
        self._seconds = seconds

    def ask(self, url: Url, headers: Mapping[str, str], silence: float) -> "Reply":
        """Return the answer to a GET, which may be a redirect; raise SourceError if none arrives.

        Wait at most `time_out()` seconds for the headers and for each piece of the body. If
        `silence` is shorter, wait at most `silence` seconds for the complete answer.
        """
        since, within = time.monotonic(), min(silence, self._seconds)
        with _translated(url):
            builder = self._client.get(url).headers(dict(headers))
            if silence < self._seconds:
                builder = builder.timeout(timedelta(seconds=silence))
            # Read nothing ahead: the library would wait for 64 KiB before it returns the headers.
            stream = builder.streamed_read_buffer_limit(0).build_streamed()
            return Reply(url, stream, since, within)


class Reply:
    """An answer whose status and headers have arrived; its body is read piece by piece."""

    def __init__(self, url: Url, stream: SyncStreamRequest, since: float, within: float) -> None:
        response = stream.__enter__()
        self.url = url
        self.since = since  # when the request was sent
        self.within = within  # seconds that the headers may take
        self.status = response.status
        self.headers = _headers(response.headers)
        self.received = 0  # bytes of the body
        self._stream = stream
        self._body = response.body_reader
        # Bytes of the body; None if the answer does not declare them.
        self.length = whole_number(self.headers.get("content-length"))
        # Over HTTP/1 a body ends with its last byte. Over HTTP/2 a frame after it ends the stream;
        # to leave before that frame resets the stream, which servers count.
        is_delimited = self.length is not None and response.version == _HTTP_1
        self._end = self.length if is_delimited else None
        if fault := _framing_fault(self.status, self.headers):
            self.close()
            raise _broken_off(url, fault)

    def pieces(self) -> Iterator[memoryview]:
        """Yield the body as it arrives; raise SourceError if it breaks off."""
        with _translated(self.url):
            while self.received != self._end and (piece := self._body.read_chunk()) is not None:
                self.received += len(piece)
                yield memoryview(piece)

    def close(self) -> None:
        self._stream.__exit__(None, None, None)


def shared_client() -> Client:
    """Return the client of this process; all audits share its connections.

    A new client is built, in 10 ms, if the settings have changed, or after a fork. Raise UsageError
    if a variable of the environment cannot be used.
    """
    names = (*_PROXIES, *map(str.lower, _PROXIES), *_CERTIFICATES)
    environment = tuple((name, os.environ.get(name, "")) for name in names)
    return _cached_client(os.getpid(), time_out(), environment)


@lru_cache(maxsize=1)
def _cached_client(
    process: int, seconds: float, environment: tuple[tuple[str, str], ...]
) -> Client:
    del process  # part of the key: a fork copies the client, but not the threads that it needs
    for name, value in environment:
        hide_user(value)
        if fault := _fault(name, value):
            raise UsageError(f"no connection can be prepared: {name} {fault}")
    try:
        return _client_after_forks(seconds)
    except BuilderError as error:  # a bare system may have no certificates
        detail = f"no connection can be prepared: {_innermost(error)}"
        ways = "install ca-certificates, or name a file of certificates by SSL_CERT_FILE"
        raise UsageError(f"{detail}; {ways}") from None


def _fault(name: str, value: str) -> str | None:
    """Return an error for a wrong environment variable, which the library would ignore; else None.

    The error quotes only the scheme of a proxy address, because a password may follow.
    """
    scheme, separator, _ = value.partition("://")
    if separator and name.upper() in _PROXIES and scheme.lower() not in _PROXY_SCHEMES:
        schemes = ", ".join(_PROXY_SCHEMES)
        return f"begins with {quoted(scheme)}, expected the address of a proxy ({schemes})"
    if value and name in _CERTIFICATES and not Path(value).exists():
        return f"is {quoted(value)}, which does not exist"
    return None


def _client_after_forks(seconds: float) -> Client:
    """Build a client with one of the library's two runtimes.

    A runtime that was started before a fork does not work in the child. Raise SourceError if both
    were: in a child of a child, after requests of both parents.
    """
    for in_threads in (False, True):
        with suppress(RuntimeError):
            return new_client(seconds, in_threads=in_threads)
    detail = "this process was forked twice, each time after requests to the network; spawn it"
    raise SourceError(Reason.UNREACHABLE, detail)


def new_client(seconds: float, *, in_threads: bool = False) -> Client:
    """Build a client that waits at most `seconds` for headers and for each piece of a body.

    With `in_threads` it uses the library's second runtime, which has several threads.
    """
    limit = timedelta(seconds=seconds)
    builder = SyncClientBuilder().follow_redirects(False).referer(False)  # noqa: FBT003 - theirs
    for packed in (builder.gzip, builder.brotli, builder.zstd, builder.deflate):
        packed(False)  # noqa: FBT003 - a range of a compressed body is not a range of the file
    builder.http2(True).runtime_multithreaded(in_threads)  # noqa: FBT003 - theirs
    builder.http2_initial_stream_window_size(_STREAM)
    builder.http2_initial_connection_window_size(_CONNECTION)
    builder.http1_lower_case_headers().connect_timeout(limit).read_timeout(limit)
    for certificate in _bundled_certificates():
        builder = builder.add_root_certificate_pem(certificate)
    return Client(builder.build(), seconds)


def _bundled_certificates() -> Iterator[bytes]:
    """Yield the certificates of REQUESTS_CA_BUNDLE; raise UsageError if it cannot be read."""
    if name := os.environ.get(_BUNDLE):
        try:
            with Path(name).open("rb") as file:
                pieces = file.read(_MOST_OF_A_BUNDLE).split(_PEM_END)
        except OSError as error:
            detail = f"{_BUNDLE} cannot be read: {error.strerror or error}"
            raise UsageError(f"no connection can be prepared: {detail}") from None
        yield from (piece + _PEM_END for piece in pieces[:-1])


def _headers(headers: Any) -> Mapping[str, str]:
    """Return headers by lower-case name; join repeated ones by ", " and omit non-ASCII values.

    A token that the server repeats becomes asterisks, except in a redirect's address, which is
    followed and never shown with its query.
    """
    value_by_name: dict[str, str] = {}
    for name in dict.fromkeys(headers):
        with suppress(ValueError):
            value = ", ".join(headers.getall(name))
            value_by_name[name] = value if name == "location" else redacted(value)
    return value_by_name


def whole_number(text: str | None) -> int | None:
    """Return a header's value as a number; None if it is not a number, or has too many digits."""
    return (
        int(text) if text and text.isascii() and text.isdecimal() and len(text) < _DIGITS else None
    )


def _framing_fault(status: int, headers: Mapping[str, str]) -> str | None:
    """Return a fault that makes the end of the body ambiguous (RFC 9112, 6.3), else None.

    Parsers disagree about such an answer, and a forged one can exploit that.
    """
    if status == _SWITCHING:
        return "it changes to another protocol, expected HTTP"
    encoding = headers.get("transfer-encoding")
    if encoding is not None and "content-length" in headers:
        return "it has both a Transfer-Encoding and a Content-Length"
    if encoding is not None and encoding.strip().lower() != "chunked":
        return f"its Transfer-Encoding is {quoted(encoding)}, not chunked"
    return None


# --- errors ---------------------------------------------------------------------------------------


@contextmanager
def _translated(url: Url) -> Iterator[None]:
    """Turn exceptions of the HTTP library into SourceError or PassingError."""
    try:
        yield
    except RequestTimeoutError as error:
        raise PassingError(Reason.TIMED_OUT, f"{url.host_str} did not answer in time") from error
    except ConnectError as error:
        raise _unconnected(url, error) from error
    except BuilderError as error:
        raise UsageError(f"{quoted(str(url))} cannot be requested: {_innermost(error)}") from error
    except ValueError:  # the error's message has the header's value, which may be a token
        detail = f"{quoted(str(url))} cannot be requested: a header's value cannot be sent"
        raise UsageError(detail) from None
    except RequestError as error:
        raise _broken_off(url, _innermost(error)) from error


def _unconnected(url: Url, error: ConnectError) -> SourceError:
    """Return the error for a ConnectError, which also covers a connection that ended early."""
    host, causes, cause = url.host_str, " ".join(_causes(error)), _innermost(error)
    if _NO_HOST in causes:
        cause = cause.removeprefix("failed to lookup address information: ")
        detail = f"{host} cannot be found ({cause}): is this machine on the network?"
        return SourceError(Reason.UNREACHABLE, detail)
    if _CERTIFICATE in causes:
        cause = cause.removeprefix(_CERTIFICATE)
        ways = "; SSL_CERT_FILE names a file of authorities to trust" if cause == _UNKNOWN else ""
        detail = f"{host} has a certificate that is not trusted: {cause}{ways}"
        return SourceError(Reason.UNREACHABLE, detail)
    if any(sign in causes for sign in _NO_CONNECTION):
        return PassingError(Reason.UNREACHABLE, f"no connection to {host}: {cause}")
    return _broken_off(url, cause)


def _broken_off(url: Url, cause: str) -> PassingError:
    """Return the error for a reply that is not HTTP or ended early."""
    return PassingError(Reason.BAD_RESPONSE, f"{url.host_str} broke off its answer: {cause}")


def _innermost(error: DetailedPyreqwestError) -> str:
    """Return the message of an error's innermost cause, which is the most specific."""
    return [error.message, *_causes(error)][-1]


def _causes(error: DetailedPyreqwestError) -> Iterator[str]:
    for cause in error.details.get("causes") or ():
        yield cause["message"]
