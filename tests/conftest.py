"""Fixtures that several test files share."""

import gc
import os
import re
import sys
from collections.abc import Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

import pytest
from huggingface_hub import close_session, constants
from hypothesis import settings
from support.hub import Hub

from auditor.downloader import retry

# Two workers on two cores: a second thread of torch in each only waits for the other worker.
os.environ.setdefault("OMP_NUM_THREADS", "1")

LEAKS = ("HF_", "HUGGING", "HTTP_", "HTTPS_", "ALL_PROXY", "NO_PROXY", "FORCE_COLOR")


@pytest.fixture(scope="session", autouse=True)
def _home_of_its_own(tmp_path_factory) -> Iterator[None]:
    """What an audit in this process keeps, it keeps here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HOME", str(tmp_path_factory.mktemp("hf-home")))
        yield


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A Hub on loopback, empty."""
    with Hub() as running:
        yield running


@pytest.fixture
def at_hub(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """The Hub of the `hub` fixture is the Hub that this process knows; it has no token or cache."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    # On a busy machine no answer is late: a request that is made again has a cost of its own.
    monkeypatch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", 100)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(retry, "FIRST_WAIT", 0.001)
    yield hub
    close_session()


@pytest.fixture
def hub_env(hub: Hub, tmp_path: Path) -> dict[str, str]:
    """The environment of a subprocess that knows no Hub but this one."""
    clean = {k: v for k, v in os.environ.items() if not k.upper().startswith(LEAKS)}
    return clean | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf-home"),
        "NO_COLOR": "1",
        "COLUMNS": "80",
    }


# No test is about time: a busy machine must not fail one.
settings.register_profile("quick", deadline=None, max_examples=5)
settings.register_profile("usual", deadline=None, max_examples=15)
settings.register_profile("thorough", deadline=None, max_examples=400)
settings.load_profile("usual")


# --- a quick run ------------------------------------------------------------------------------

LEFT_OUT = ("slow", "oracle", "online")
LEFT_OUT_WHOLE = re.compile(
    rf"^pytestmark = \[?\s*pytest\.mark\.({'|'.join(LEFT_OUT)})\b", re.MULTILINE
)


class Refused(MetaPathFinder, Loader):
    """Torch and transformers can be found, as the auditor asks, and are not imported."""

    def find_spec(self, fullname: str, path=None, target=None) -> ModuleSpec | None:  # noqa: ARG002
        spec = PathFinder.find_spec(fullname) if fullname in {"torch", "transformers"} else None
        if spec is not None:
            spec.loader = self
        return spec

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        raise ModuleNotFoundError(f"a quick run does without {name}", name=name)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--quick`, which `make quick` gives."""
    said = f"without torch, without tests that are {', '.join(LEFT_OUT)}, and 5 examples of a law"
    parser.addoption("--quick", action="store_true", help=said)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--quick"):
        settings.load_profile("quick")
        sys.meta_path.insert(0, Refused())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file whose tests are all left out is not even imported; None: others decide."""
    if config.getoption("--quick") and collection_path.suffix == ".py":
        return bool(LEFT_OUT_WHOLE.search(collection_path.read_text("utf-8"))) or None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--quick"):
        chosen: dict[bool, list[pytest.Item]] = {True: [], False: []}
        for item in items:
            chosen[not any(map(item.get_closest_marker, LEFT_OUT))].append(item)
        config.hook.pytest_deselected(items=chosen[False])
        items[:] = chosen[True]


def pytest_collection_finish() -> None:
    """What the tests share lives as long as they do: no collection of garbage looks at it again.

    A million objects of a model's tensors hold no cycles either, and are looked at less often:
    the two together took a fifth of the time of a test of 92,000 tensors.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def pytest_terminal_summary(terminalreporter) -> None:
    """How many configs the closed forms were held to the oracle over, and what it builds itself."""
    passed = terminalreporter.stats.get("passed", ())
    counted = [(key, count) for report in passed for key, count in report.user_properties]
    defaults = sum(count for key, count in counted if key == "oracle_defaults")
    examples = sum(count for key, count in counted if key == "oracle_examples")
    if defaults or examples:
        terminalreporter.write_line(
            f"closed form = oracle: {defaults} classes over their defaults, "
            f"{examples:,} random configs"
        )
    built = sum(count for key, count in counted if key == "oracle_pairs")
    refused = sum(count for key, count in counted if key == "oracle_pairs_refused")
    if built:
        terminalreporter.write_line(
            f"the oracle builds {built:,} of {built + refused:,} pairs of type and class by default"
        )
