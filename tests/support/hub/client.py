"""A plain client: one request a connection; follows nothing, retries nothing."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Reply(NamedTuple):
    """A response, read to its end."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def connect(url: str, timeout: float = 10) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    return http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=timeout)


@contextmanager
def opened(
    url: str, method: str = "GET", timeout: float = 10, **headers: str
) -> Iterator[http.client.HTTPResponse]:
    """The response to one request, its body unread."""
    connection = connect(url, timeout)
    target = url.removeprefix(f"http://{connection.host}:{connection.port}")
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        connection.request(method, target, headers=named)
        yield connection.getresponse()
    finally:
        connection.close()


def ask(url: str, method: str = "GET", **headers: str) -> Reply:
    with opened(url, method, **headers) as response:
        return Reply(status=response.status, headers=response.headers, body=response.read())
