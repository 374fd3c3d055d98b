"""A machine that knows one Hub, has an empty cache and no token, and does not wait for long."""

import shutil
import subprocess
from pathlib import Path

import pytest
from huggingface_hub import close_session, constants
from support.hub import Hub

from auditor.downloader import retry


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_OIDC_RESOURCE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_STORED_TOKENS_PATH", str(tmp_path / "stored_tokens"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(retry, "FIRST_WAIT", 0.001)
    return monkeypatch


@pytest.fixture
def at_hub(hub: Hub, machine: pytest.MonkeyPatch):
    """The Hub of the `hub` fixture is the Hub that this machine knows."""
    machine.setattr(constants, "ENDPOINT", hub.url)
    template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    machine.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    yield hub
    close_session()


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """One for 127.0.0.1, its key, and the certificate of the authority that signed it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl here to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    for command in (
        ("req", "-x509", *key, "-days", "2", "-subj", "/CN=us", "-keyout", "ca.key", "-out", "ca"),
        ("req", *key, "-subj", "/CN=tests", "-keyout", "key", "-out", "asked"),
        (
            "x509",
            "-req",
            "-in",
            "asked",
            "-CA",
            "ca",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "2",
            "-extfile",
            "names",
            "-out",
            "cert",
        ),
    ):
        subprocess.run([openssl, *command], check=True, capture_output=True, cwd=folder)  # noqa: S603 - ours
    return folder / "cert", folder / "key", folder / "ca"
