"""What is asked for over TLS: certificates are judged, and nobody is led back to plain HTTP."""

import socketserver
import ssl
import threading
from contextlib import contextmanager

import pytest
from huggingface_hub import constants

from auditor.downloader import hub
from auditor.downloader.fetching import ignore_message
from auditor.downloader.http import Session
from auditor.downloader.model_argument import HubModel
from auditor.errors import Reason, SourceError

COMMIT = "a" * 40
MODEL = HubModel(id="o/n", revision=COMMIT)


class _Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while line := self.rfile.readline():
            while self.rfile.readline().strip():
                pass
            self.server.connections.add(self.client_address[1])
            self.wfile.write(self.server.answers[line.decode().split()[1]])


@contextmanager
def serving(certificate, answers):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate[:2])
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Handler) as server:
        server.daemon_threads = True
        server.answers, server.connections = answers, set()
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # a client that hangs up is what is tested
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server, f"https://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def answer(body, status="200 OK", **headers):
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", f"X-Repo-Commit: {COMMIT}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join((*lines, "", "")).encode() + body


@pytest.fixture
def session(machine, certificate):
    """A session by which the certificate is trusted."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        machine.delenv(name, raising=False)
        machine.delenv(name.upper(), raising=False)
    machine.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 2)
    machine.setenv("SSL_CERT_FILE", str(certificate[2]))
    return lambda: Session(MODEL, None, ignore_message)


def test_a_body_comes_over_tls_and_its_connection_serves_again(session, certificate):
    answers = {"/a": answer(b"x" * 200_000), "/b": answer(b"y")}
    take = hub.whole_body(10**6, None)
    with serving(certificate, answers) as (server, url):
        asked = session()
        bodies = [asked.get(f"{url}{path}", take, purpose="a") for path in ("/a", "/b", "/a")]
        assert len(server.connections) == 1
    assert bodies == [b"x" * 200_000, b"y", b"x" * 200_000]


def test_an_untrusted_certificate_ends_it_at_once(session, certificate, machine):
    machine.delenv("SSL_CERT_FILE")
    with (
        serving(certificate, {}) as (_, url),
        pytest.raises(SourceError, match=r"not trusted: .*; SSL_CERT_FILE names") as error,
    ):
        session().get(f"{url}/a", hub.whole_body(10, None), purpose="a")
    assert error.value.reason is Reason.UNREACHABLE


def test_a_redirect_from_https_to_http_is_not_followed(session, certificate):
    leads = answer(b"", "302 Found", Location="http://127.0.0.1:9/a")
    with (
        serving(certificate, {"/a": leads}) as (_, url),
        pytest.raises(SourceError, match="redirects from https to 'http'") as error,
    ):
        session().get(f"{url}/a", hub.whole_body(10, None), purpose="a")
    assert error.value.reason is Reason.BAD_RESPONSE


def test_a_server_that_speaks_no_tls_is_an_address_without_an_answer(session, hub):
    plain = hub.url.replace("http://", "https://")
    with pytest.raises(SourceError, match="no connection to 127") as error:
        session().get(f"{plain}/a", lambda answer: answer, purpose="a")
    assert error.value.reason is Reason.UNREACHABLE
