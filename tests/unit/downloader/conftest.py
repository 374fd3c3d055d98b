"""A machine that knows one Hub, has an empty cache and no token, and does not wait for long."""

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
