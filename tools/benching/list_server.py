"""A list of models without the models, served by a thread, or by a process of its own.

`python -m benching.list_server MODELS PAGE` serves so many, so many a page.
"""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

PAGE = 1000
COMMIT = "0123456789abcdef" * 2 + "01234567"
FILES = ("README.md", "config.json", "model.safetensors", "tokenizer.json", "vocab.txt")


class Page(NamedTuple):
    """One answer of the list API, and the cursor of the next."""

    body: bytes
    following: str | None = None


Lists = Callable[[str], Page]  # by cursor, "" being the first


def entry(name: str) -> str:
    """A model as the list has it, with an id that needs no escaping."""
    files = ",".join(f'{{"rfilename":"{file}"}}' for file in FILES)
    return f'{{"_id":"{COMMIT[:24]}","id":"{name}","sha":"{COMMIT}","siblings":[{files}]}}'


def all_different(models: int, page: int = PAGE) -> Lists:
    """So many models, none twice; made by replacing, so that the server takes little time."""
    template = f"[{','.join(entry(f'bench/@-{number}') for number in range(page))}]".encode()

    def made(cursor: str) -> Page:
        number = int(cursor or 0)
        last = (number + 1) * page >= models
        return Page(template.replace(b"@", b"%d" % number), None if last else str(number + 1))

    return made


@contextmanager
def serving(lists: Lists) -> Iterator[str]:
    """The address of a Hub that has nothing but this list."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            query = parse_qs(urlsplit(self.path).query)
            found = lists(query.get("cursor", [""])[0])
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(found.body)))
            if found.following is not None:
                address = f"{url}/api/models?cursor={found.following}"
                self.send_header("Link", f'<{address}>; rel="next"')
            self.end_headers()
            self.wfile.write(found.body)

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield url
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def serving_apart(models: int, page: int = PAGE) -> Iterator[str]:
    """As `serving` so many that are all different, in a process of its own."""
    process = subprocess.Popen(  # noqa: S603 - our own command
        [sys.executable, __file__, str(models), str(page)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout  # it is a pipe
        yield process.stdout.readline().strip()
        process.kill()


def main() -> None:
    models, page = map(int, sys.argv[1:])
    with serving(all_different(models, page)) as url:
        print(url, flush=True)
        sys.stdin.read()  # until that one has ended


if __name__ == "__main__":
    main()
