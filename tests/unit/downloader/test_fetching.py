"""fetch: which source speaks, and what an audit without network never loads."""

import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import constants
from support.builders import safetensors_bytes
from support.hub import HtmlPage, Origin, ServerError

from auditor.checkpoint.snapshot import Source
from auditor.downloader.fetching import fetch
from auditor.errors import Reason, SourceError, UsageError

WEIGHTS = safetensors_bytes({"a": ("F32", (2, 3))})
SHA = "ab" * 20
SHIPPED = "bert-base-cased"


def fill(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(b"{}")
    (folder / "model.safetensors").write_bytes(WEIGHTS)
    return folder


@pytest.fixture
def cache(tmp_path):
    """A function that puts a model into the cache."""

    def put(model: str) -> None:
        at = tmp_path / "cache" / f"models--{model.replace('/', '--')}"
        fill(at / "snapshots" / SHA)
        (at / "refs").mkdir()
        (at / "refs" / "main").write_text(SHA)

    return put


def test_an_unknown_source_is_refused_with_the_known_ones():
    with pytest.raises(
        UsageError, match="'disk' does not exist; the sources are auto, hub, cache, bundled"
    ):
        fetch("org/name", source="disk")


def test_a_path_is_read_whatever_the_source(tmp_path):
    folder = str(fill(tmp_path / "m"))
    for source in ("auto", "hub", "cache", "bundled"):
        assert fetch(folder, source=source).source is Source.FOLDER


def test_with_the_hub_alone_the_alternatives_are_named(at_hub):
    at_hub.misbehave(fault=HtmlPage())
    ways = "--source cache, --source bundled or --source auto may have the model"
    with pytest.raises(SourceError, match=ways):
        fetch(SHIPPED)


def test_auto_tries_the_hub_first(at_hub, cache):
    cache("org/name")
    at_hub.add("org/name", {"config.json": b"[1]", "model.safetensors": WEIGHTS})
    told = []
    snapshot = fetch("org/name", source="auto", say=told.append)
    assert (snapshot.source, snapshot.config.content, told) == (Source.HUB, b"[1]", [])


def test_where_the_hub_does_not_answer_the_cache_does(at_hub, cache):
    cache(SHIPPED)
    at_hub.misbehave(fault=ServerError(status=503))
    told = []
    snapshot = fetch(SHIPPED, source="auto", say=told.append)
    assert (snapshot.source, snapshot.commit) == (Source.CACHE, SHA)
    assert "(the Hub did not answer: " in snapshot.origin
    assert len(told) == 1
    assert told[0].startswith(f"{SHIPPED}: read from the Hugging Face cache instead of the Hub (")


def test_where_the_cache_has_nothing_the_package_answers(at_hub):
    at_hub.misbehave(fault=HtmlPage())
    told = []
    snapshot = fetch(SHIPPED, source="auto", say=told.append)
    assert (snapshot.source, snapshot.model) == (Source.BUNDLED, f"google-bert/{SHIPPED}")
    assert snapshot.origin.startswith("rebuilt from the published config.json")
    assert "(the Hub did not answer: " in snapshot.origin
    assert told[0].startswith(f"{SHIPPED}: read from this package instead of the Hub (")


def test_offline_auto_goes_straight_to_what_is_here(at_hub, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert fetch(SHIPPED, source="auto").source is Source.BUNDLED
    assert at_hub.log == ()


def test_without_any_copy_the_fault_of_the_hub_is_reported(at_hub):
    at_hub.misbehave(fault=ServerError(status=503))
    said = "answered 503.*; neither the Hugging Face cache nor this package has org/name"
    with pytest.raises(SourceError, match=said) as raised:
        fetch("org/name", source="auto")
    assert raised.value.reason is Reason.SERVER_ERROR


def test_what_the_hub_has_answered_no_copy_gainsays(at_hub, cache):
    cache(SHIPPED)
    with pytest.raises(SourceError, match="shows no model") as raised:
        fetch(SHIPPED, source="auto")
    assert raised.value.reason is Reason.NOT_FOUND
    assert not any(record.origin is Origin.STORAGE for record in at_hub.log)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("requested", "source"), [("{folder}", "hub"), ("bert-base-chinese", "bundled")]
)
def test_without_the_network_nothing_of_it_is_loaded(tmp_path, requested, source):
    folder = fill(tmp_path / "m")
    program = f"""
import sys
from auditor.downloader.fetching import fetch
fetch({requested.format(folder=folder)!r}, source={source!r})
print([name for name in ("huggingface_hub", "httpx2", "tenacity", "ssl") if name in sys.modules])
"""
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, capture_output=True, text=True, check=True)  # noqa: S603 - ours
    assert done.stdout == "[]\n"
