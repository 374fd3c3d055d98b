"""Buckets and datasets of the Hub, which huggingface_hub's file system lists and reads."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import constants
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.store_reports import of_any_source

from auditor import audit
from auditor.errors import Reason

MODEL = expect("BertModel")
FILES = {
    "config.json": config_bytes(architectures=["BertModel"]),
    "model.safetensors": safetensors_bytes(
        {one.name: ("F32", one.shape) for one in stored_by(MODEL)}
    ),
    "README.md": b"# a model",
}
TIME = "2026-11-20T10:00:00.000Z"
COMMIT = "c" * 40


class FakeHub(BaseHTTPRequestHandler):
    """One bucket, o/b, and one dataset, o/d; both have a model in the folder `one`."""

    server: "Server"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(path)
        if "/tree" in path:
            self._answer(json.dumps([_entry(*item) for item in FILES.items()]).encode())
        elif path == "/api/buckets/o/b":
            sizes = {"size": 1, "totalFiles": len(FILES)}
            self._answer(
                json.dumps({"id": "o/b", "private": False, "createdAt": TIME, **sizes}).encode()
            )
        elif path.startswith("/api/datasets/o/d"):
            self._answer(json.dumps({"id": "o/d", "sha": COMMIT}).encode())
        elif "/resolve/" in path and path.rpartition("/")[2] in FILES:
            self._answer(FILES[path.rpartition("/")[2]])
        else:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

    def _answer(self, content: bytes) -> None:
        span = self.headers.get("range")
        if span:
            first, last = map(int, span.removeprefix("bytes=").split("-"))
            self.server.received.append((first, last))
            content = content[first : last + 1]
        self.send_response(206 if span else 200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class Server(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), FakeHub)
        self.asked: list[str] = []
        self.received: list[tuple[int, int]] = []


def _entry(name: str, content: bytes) -> dict[str, object]:
    known = {"type": "file", "path": f"one/{name}", "size": len(content)}
    return known | {"xetHash": "a" * 64, "oid": "b" * 40, "uploadedAt": TIME}


@pytest.fixture
def server(machine) -> Iterator[Server]:
    with Server() as running:
        Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        url = f"http://127.0.0.1:{running.server_port}"
        machine.setattr(constants, "ENDPOINT", url)
        template = f"{url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        machine.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        yield running
        running.shutdown()


@pytest.mark.parametrize("address", ["hf://buckets/o/b/one", "hf://datasets/o/d/one"])
def test_it_has_the_report_of_the_folder_and_reads_no_more(address, server, tmp_path: Path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    assert of_any_source(address) == of_any_source(str(tmp_path))
    assert sorted(server.received) == sorted(
        (0, len(FILES[name]) - 1) for name in ("config.json", "model.safetensors")
    )


@pytest.mark.usefixtures("server")
def test_a_bucket_that_does_not_exist_is_not_found():
    assert audit("hf://buckets/o/none/one").reason == Reason.NOT_FOUND
