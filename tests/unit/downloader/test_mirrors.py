"""Mirrors and proxies: each has the report of the folder, whatever it leaves out or is behind."""

import base64
import json
import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest
from huggingface_hub import constants
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.hub import Fault, Header, Hub, Says, WholeFile
from support.store_reports import of_any_source

from auditor import audit
from auditor.downloader.model_argument import parse_model
from auditor.errors import Reason

MODEL = expect("BertModel")
FILES = {
    "config.json": config_bytes(architectures=["BertModel"]),
    "model.safetensors": safetensors_bytes(
        {one.name: ("F32", one.shape) for one in stored_by(MODEL)}
    ),
}
COMMIT = "c" * 40
NO_COMMIT = Header(name="X-Repo-Commit", value=None)
PASSWORD = "p:w d"  # noqa: S105 - opens nothing
CREDENTIALS = base64.b64encode(f"user:{PASSWORD}".encode()).decode()


@pytest.fixture
def folder(tmp_path: Path, machine) -> str:
    for name in (
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
        "SSL_CERT_FILE",
        "requests_ca_bundle",
    ):
        machine.delenv(name, raising=False)
        machine.delenv(name.upper(), raising=False)
    (tmp_path / "model").mkdir()
    for name, content in FILES.items():
        (tmp_path / "model" / name).write_bytes(content)
    return str(tmp_path / "model")


@pytest.mark.parametrize(
    "faults",
    [
        {},
        {"*": WholeFile()},
        {"*": NO_COMMIT},
        {"*/tree/*": Says(status=404)},
        {"*/tree/*": Says(status=404), "/o/n/*": NO_COMMIT, "/xet/*": WholeFile()},
    ],
    ids=["none", "no ranges", "no commit", "no tree", "none of them"],
)
@pytest.mark.parametrize("xet", [True, False])
def test_a_mirror_below_a_path_has_the_report_of_the_folder(faults, xet, folder, machine):
    with Hub(prefix="/mirrors/hf") as mirror:
        mirror.add("o/n", FILES)
        for path, fault in faults.items():
            mirror.misbehave(fault=fault, path=path)
        machine.setattr(constants, "ENDPOINT", f"{mirror.url}/mirrors/hf")
        machine.setattr(constants, "HF_HUB_DISABLE_XET", not xet)
        assert of_any_source("o/n") == of_any_source(folder)
        outcome = audit(f"{mirror.url}/mirrors/hf/o/n")
        assert outcome.commit is not None
        assert ("the listing's is given" in outcome.origin) == (NO_COMMIT in faults.values())


def test_the_hub_itself_has_to_name_the_commit(folder, at_hub, machine):
    del folder
    at_hub.add("o/n", FILES)
    at_hub.misbehave(fault=NO_COMMIT)
    machine.setattr("auditor.downloader.answers.is_mirror", lambda: False)
    outcome = audit("o/n")
    assert (outcome.reason, "names no commit" in outcome.detail) == (Reason.BAD_RESPONSE, True)


def test_a_mirror_with_another_files_size_is_refused(folder, at_hub):
    del folder
    at_hub.add("o/n", FILES)
    page: Fault = Says(status=200)
    at_hub.misbehave(fault=page, path="*config.json")
    assert audit("o/n").reason == Reason.BAD_RESPONSE


class Mirror(BaseHTTPRequestHandler):
    """A mirror that serves one model from its own disk: no redirects, no commits, no ranges."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        content = FILES.get(path.rpartition("/")[2], b"")
        if path == "/api/models/o/n/revision/main":
            files = [{"rfilename": name, "size": len(one)} for name, one in FILES.items()]
            content = json.dumps({"id": "o/n", "sha": COMMIT, "siblings": files}).encode()
        self.send_response(200 if content else 404)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class Proxy(BaseHTTPRequestHandler):
    """A proxy that connects whoever has the password."""

    def log_message(self, *_: object) -> None:
        pass

    def do_CONNECT(self) -> None:
        self.server.asked.append(self.path)
        if self.headers.get("Proxy-Authorization") != f"Basic {CREDENTIALS}":
            self.send_response(407)
            self.send_header("Proxy-Authenticate", "Basic")
            self.end_headers()
            return
        host, port = self.path.split(":")
        self.send_response(200)
        self.end_headers()
        with socket.create_connection((host, int(port))) as server:
            ends = {self.connection: server, server: self.connection}
            while True:
                for ready in select.select(list(ends), [], [])[0]:
                    if not (data := ready.recv(65536)):
                        return
                    ends[ready].sendall(data)


@contextmanager
def serving(handler, context: ssl.SSLContext | None = None) -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads, server.asked = True, []
        server.handle_error = lambda *_: None  # a client that hangs up
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def mirror(certificate, machine) -> Iterator[ThreadingHTTPServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate[:2])
    with serving(Mirror, context) as server:
        machine.setattr(constants, "ENDPOINT", f"https://127.0.0.1:{server.server_port}")
        yield server


@pytest.mark.usefixtures("mirror")
@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_an_authority_of_a_company_is_trusted_by_its_variable(
    variable, folder, certificate, machine, tmp_path
):
    assert "certificate that is not trusted" in audit("o/n").detail
    bundle = tmp_path / "bundle"
    bundle.write_bytes(certificate[0].read_bytes() + certificate[2].read_bytes())
    machine.setenv(variable, str(bundle))
    assert of_any_source("o/n") == of_any_source(folder)


def test_a_proxy_gets_its_password_and_nobody_else_sees_it(folder, mirror, certificate, machine):
    machine.setenv("SSL_CERT_FILE", str(certificate[2]))
    with serving(Proxy) as proxy:
        address = f"127.0.0.1:{proxy.server_port}"
        machine.setenv("HTTPS_PROXY", f"http://user:p%3Aw%20d@{address}")
        assert of_any_source("o/n") == of_any_source(folder)
        assert set(proxy.asked) == {f"127.0.0.1:{mirror.server_port}"}
        machine.setenv("HTTPS_PROXY", f"http://user:wrong@{address}")
        outcome = audit("o/n")
    assert "407" in outcome.detail or "proxy" in outcome.detail
    assert "wrong" not in outcome.detail


def test_an_address_below_the_path_of_a_mirror_names_its_model(machine):
    machine.setattr(constants, "ENDPOINT", "http://127.0.0.1:9/mirrors/hf")
    model = parse_model("http://127.0.0.1:9/mirrors/hf/o/n/tree/main")
    assert (model.id, model.revision) == ("o/n", "main")
