"""huggingface_hub's own client as a Wire: its proxies, its certificates, its offline mode."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial

import httpx2
from huggingface_hub import get_session

from auditor.downloader.wire import Address, grace, patience
from auditor.errors import UsageError


class HubClient:
    """A Wire over the session that huggingface_hub keeps for the whole process."""

    def __init__(self) -> None:
        self._client = _client()

    def ask(self, address: Address, headers: Mapping[str, str]) -> "_Reply":
        timeout = httpx2.Timeout(patience())
        request = self._client.build_request("GET", address.url, headers=headers, timeout=timeout)
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
        return self._response.iter_raw()

    def close(self) -> None:
        self._response.close()


def _client() -> httpx2.Client:
    """Made at the first call, of what the environment says."""
    try:
        return get_session()
    except (ValueError, ImportError, OSError) as error:
        detail = "are the proxies (HTTPS_PROXY, ALL_PROXY) and SSL_CERT_FILE of this machine right?"
        raise UsageError(f"no connection can be prepared: {error}; {detail}") from None


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
