"""huggingface_hub's own client as a Wire: its proxies, its certificates, its offline mode."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial

import httpx2
from huggingface_hub import get_session
from huggingface_hub.errors import OfflineModeIsEnabled

from auditor.downloader.http_errors import OFFLINE
from auditor.downloader.transport import (
    UPGRADE,
    Address,
    BadAddressError,
    BrokenAnswerError,
    TooLateError,
    TransportError,
    grace,
    patience,
)
from auditor.errors import Reason, SourceError, UsageError

_UPGRADE = "_SWITCH_UPGRADE"  # in what h11 says of status 101

_LOOK = 0.25  # seconds between looks at a call
# Seconds of processor time for an answer's headers, which take 2 ms.
_MOST_WORK = 0.5


class HubClient:
    """A Wire over the session that huggingface_hub keeps for the whole process."""

    def __init__(self) -> None:
        self._client = _client()

    def ask(self, address: Address, headers: Mapping[str, str], silence: float) -> "_Reply":
        timeout = httpx2.Timeout(min(patience(), silence))
        build = partial(self._client.build_request, headers=headers, timeout=timeout)
        with _translated():
            request = build("GET", address.url)
            send = partial(self._client.send, request, stream=True, follow_redirects=False)
            return _Reply(address, _Call(send).result(min(grace(), silence)))


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
        raise BrokenAnswerError(UPGRADE if _UPGRADE in str(error) else str(error)) from error
    except httpx2.HTTPError as error:
        raise TransportError(str(error)) from error


class _Call:
    """A call in a thread of its own, which can be given up.

    The transport's own time-outs are for each read. They do not reach into the name look-up, and
    never end answers that are only announced (100 Continue), again and again.
    """

    def __init__(self, call: Callable[[], httpx2.Response]) -> None:
        self._call = call
        self._future = Future[httpx2.Response]()
        self._lock = threading.Lock()
        self._ended = False
        self._clock: int | None = None  # of the thread's processor time, where there is one
        self._thread = threading.Thread(target=self._run, name="request", daemon=True)
        self._thread.start()

    def result(self, seconds: float) -> httpx2.Response:
        """The response, or a time-out after that many seconds."""
        until = time.monotonic() + seconds
        while True:
            left = until - time.monotonic()
            with suppress(TimeoutError):
                return self._future.result(max(0.0, min(left, _LOOK)))
            work = self._work()
            if (left <= 0 or work > _MOST_WORK) and self._future.cancel():
                self._end()
                if work > _MOST_WORK:
                    raise httpx2.RemoteProtocolError("it sends headers without end")
                raise httpx2.ReadTimeout(f"no headers within {seconds:.0f} s")

    def _run(self) -> None:
        if hasattr(time, "pthread_getcpuclockid"):
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
        future = self._future
        try:
            response = self._call()
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that waits
            if future.set_running_or_notify_cancel():
                future.set_exception(error)
        else:
            if future.set_running_or_notify_cancel():
                future.set_result(response)
            else:
                response.close()
        with self._lock:
            self._ended = True

    def _work(self) -> float:
        """Seconds of processor time that it has taken."""
        with suppress(OSError):  # the thread has ended
            return time.clock_gettime(self._clock) if self._clock is not None else 0.0
        return 0.0

    def _end(self) -> None:
        """End the thread at its next step: one that is given up would go on reading for ever."""
        import ctypes  # noqa: PLC0415 - 5 ms, for what hardly ever happens

        with self._lock:  # and so it is this thread yet that has this number
            if not self._ended:
                number = ctypes.c_ulong(self._thread.ident or 0)
                raised = ctypes.py_object(SystemExit)  # which ends a thread in silence
                ctypes.pythonapi.PyThreadState_SetAsyncExc(number, raised)
