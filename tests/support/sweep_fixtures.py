"""A Hub on loopback that this process and the processes of a sweep take for the Hub.

The conftest.py of every folder that needs these fixtures imports them.
"""

from pathlib import Path

import pytest
from huggingface_hub import constants
from support.hub import Hub

from auditor.sweep.settings import Output, Policy, SweepSettings


@pytest.fixture
def at_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Hub:
    """Constants for this process, variables for those that it starts."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_OIDC_RESOURCE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    monkeypatch.setenv("HF_HUB_DOWNLOAD_TIMEOUT", "1")
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_STORED_TOKENS_PATH", str(tmp_path / "stored_tokens"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 1)
    return hub


@pytest.fixture
def settings(tmp_path: Path):
    """Settings of a sweep over some selections: at most eight models at once."""

    def make(*selections, **bounds) -> SweepSettings:
        policy = Policy(**{"at_once": 8, **bounds})
        output = Output(store=tmp_path / "sweep.sqlite")
        return SweepSettings(selections=selections, policy=policy, output=output)

    return make
