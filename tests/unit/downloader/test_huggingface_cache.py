"""A Hub model in the Hugging Face cache, found without asking anyone."""

from pathlib import Path

import pytest
from huggingface_hub import hf_hub_download, snapshot_download
from support.builders import safetensors_bytes
from support.hub import Hub

from auditor.checkpoint.skipped import SkippedEntry, SkipReason
from auditor.checkpoint.snapshot import Source
from auditor.downloader.fetching import fetch
from auditor.downloader.folder_listing import list_folder
from auditor.errors import Reason, SourceError

WEIGHTS = safetensors_bytes({"a": ("F32", (2, 3))})
FILES = {"config.json": b"{}", "model.safetensors": WEIGHTS, "README.md": b"hello"}


def in_cache(cache: Path, model: str, *names: str, sha: str = "ab" * 20) -> Path:
    at = cache / f"models--{model.replace('/', '--')}"
    for name in names:
        (at / "snapshots" / sha).mkdir(parents=True, exist_ok=True)
        (at / "snapshots" / sha / name).write_bytes(FILES[name])
    (at / "refs").mkdir(exist_ok=True)
    (at / "refs" / "main").write_text(sha)
    return at


def download(hub: Hub, revision: str = "main") -> None:
    """What huggingface_hub itself leaves in the cache."""
    for name in FILES:
        hf_hub_download("org/name", name, revision=revision, endpoint=hub.url)


@pytest.fixture
def cache(machine, tmp_path):  # noqa: ARG001 - sets the cache's place
    return tmp_path / "cache"


def test_what_huggingface_hub_leaves_in_the_cache_is_found(at_hub):
    sha = at_hub.add("org/name", FILES)
    download(at_hub)
    at_hub.reset_log()
    snapshot = fetch("org/name", source="cache")
    assert (snapshot.model, snapshot.commit, snapshot.source) == ("org/name", sha, Source.CACHE)
    assert snapshot.headers[0].prefix == WEIGHTS[:-24]
    assert at_hub.log == ()


def test_it_is_the_same_snapshot_as_the_hubs(at_hub):
    at_hub.add("org/name", FILES)
    download(at_hub)
    here, there = fetch("org/name", source="cache"), fetch("org/name")
    for part in ("model", "commit", "files", "config", "index", "headers", "unopened"):
        assert getattr(here, part) == getattr(there, part)


def test_a_revision_is_looked_up_by_name_and_by_commit(at_hub):
    at_hub.add("org/name", FILES)
    sha = at_hub.push("org/name", {**FILES, "config.json": b"[]"}, revision="v2")
    download(at_hub, revision="v2")
    for revision in ("v2", sha):
        assert fetch(f"org/name@{revision}", source="cache").config.content == b"[]"
    with pytest.raises(SourceError, match="org/name is not in the cache") as raised:
        fetch("org/name", source="cache")
    assert raised.value.reason is Reason.NOT_CACHED


def test_old_and_new_names_find_each_other_and_the_requested_one_comes_first(cache):
    new, old = "google-bert/bert-base-cased", "bert-base-cased"
    in_cache(cache, new, "config.json", "model.safetensors")
    assert fetch(old, source="cache").model == new
    in_cache(cache, old, "config.json", "model.safetensors")
    assert fetch(old, source="cache").model == old


def test_the_notes_of_a_download_into_a_folder_are_no_files_of_the_model(at_hub, tmp_path):
    at_hub.add("org/name", FILES)
    place = snapshot_download("org/name", local_dir=tmp_path / "here", endpoint=at_hub.url)
    listing = list_folder(Path(place))
    assert {file.name for file in listing.files} == FILES.keys()
    assert listing.skipped == (SkippedEntry(".cache/huggingface", SkipReason.DOWNLOAD),)


def test_an_uncached_model_is_reported_with_the_folder(cache):
    with pytest.raises(SourceError, match=f"org/name at 'v2' is not in the cache, '{cache}'"):
        fetch("org/name@v2", source="cache")


def test_a_config_without_weights_is_not_cached(at_hub):
    at_hub.add("org/name", FILES)
    hf_hub_download("org/name", "config.json", endpoint=at_hub.url)
    with pytest.raises(SourceError, match="in the cache without its weights") as raised:
        fetch("org/name", source="cache")
    assert raised.value.reason is Reason.NOT_CACHED
