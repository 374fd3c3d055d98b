"""huggingface_hub's own client as a Wire: its proxies, its certificates, its offline mode."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial

import httpx2
from huggingface_hub import get_session
from huggingface_hub.errors import OfflineModeIsEnabled

from auditor.downloader.refusals import OFFLINE
from auditor.downloader.wire import (
    Address,
    BadAddressError,
    BrokenAnswerError,
    TooLateError,
    WireError,
    grace,
    patience,
)
from auditor.errors import Reason, SourceError, UsageError


class HubClient:
    """A Wire over the session that huggingface_hub keeps for the whole process."""

    def __init__(self) -> None:
        self._client = _client()

    def ask(self, address: Address, headers: Mapping[str, str]) -> "_Reply":
        timeout = httpx2.Timeout(patience())
        build = partial(self._client.build_request, headers=headers, timeout=timeout)
        with _translated():
            request = build("GET", address.url)
            send = partial(self._client.send, request, stream=True, follow_redirects=False)
            return _Reply(address, _within(grace(), send))


class _Reply:
    """An answer of httpx2."""

    def __init__(self, address: Address, response: httpx2.Response) -> None:
        self.address = address
        self.status = response.status_code
        self.phrase = response.reason_phrase
        self.headers: Mapping[str, str] = response.headers
        self._response = response

    def pieces(self) -> Iterator[bytes]:
        with _translated():
            yield from self._response.iter_raw()

    def close(self) -> None:
        self._response.close()


def _client() -> httpx2.Client:
    """Made at the first call, of what the environment says."""
    try:
        return get_session()
    except (ValueError, ImportError, OSError) as error:
        detail = "are the proxies (HTTPS_PROXY, ALL_PROXY) and SSL_CERT_FILE of this machine right?"
        raise UsageError(f"no connection can be prepared: {error}; {detail}") from None


@contextmanager
def _translated() -> Iterator[None]:
    """Errors of httpx2, as what they are to a Wire."""
    try:
        yield
    except OfflineModeIsEnabled:
        raise SourceError(Reason.OFFLINE, OFFLINE) from None
    except (httpx2.UnsupportedProtocol, httpx2.InvalidURL, httpx2.LocalProtocolError) as error:
        raise BadAddressError(str(error)) from error
    except httpx2.TimeoutException as error:
        raise TooLateError(str(error)) from error
    except httpx2.RemoteProtocolError as error:
        raise BrokenAnswerError(str(error)) from error
    except httpx2.HTTPError as error:
        raise WireError(str(error)) from error


def _within(seconds: float, call: Callable[[], httpx2.Response]) -> httpx2.Response:
    """The call's response, or a time-out after so many seconds.

    The transport's own time-outs are for each read, and do not reach into the name look-up.
    """
    future = Future[httpx2.Response]()

    def run() -> None:
        try:
            response = call()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
            return
        if future.set_running_or_notify_cancel():
            future.set_result(response)
        else:
            response.close()

    threading.Thread(target=run, daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.cancel():
            raise httpx2.ReadTimeout(f"no headers within {seconds:.0f} s") from None
        return future.result()
