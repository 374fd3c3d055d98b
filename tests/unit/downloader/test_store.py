"""Checkpoints in stores: memory by fsspec, a folder of a web server, and sweeps over both ends."""

import json
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import fsspec
import pytest
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.store_reports import of_any_source

from auditor import AuditRequest, audit, snapshot
from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader import store
from auditor.errors import Reason, SourceError, UsageError
from auditor.sweep import runner
from auditor.sweep.settings import ModelSelection, Output, Policy, SweepSettings
from auditor.sweep.store.reading import Store

MODEL = expect("BertModel")
WEIGHTS = safetensors_bytes({one.name: ("F32", one.shape) for one in stored_by(MODEL)})
FILES = {
    "config.json": config_bytes(architectures=["BertModel"]),
    "model.safetensors": WEIGHTS,
    "README.md": b"# a model",
}


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    system = fsspec.filesystem("memory")
    for name, content in FILES.items():
        system.pipe(f"/bucket/models/one/{name}", content)
    yield system
    system.rm("/bucket", recursive=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        place = tmp_path / "models" / "one" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return tmp_path


class Quiet(SimpleHTTPRequestHandler):
    """Python's own server: it lists folders, and ignores ranges."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def web(folder: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("memory")
def test_a_store_has_the_report_of_the_folder(folder, web):
    expected = of_any_source(str(folder / "models/one"))
    assert json.loads(expected)["verdict"] == "clean"
    assert of_any_source("memory://bucket/models/one/") == expected
    assert of_any_source(f"{web}/models/one/") == expected
    alone = of_any_source(str(folder / "models/one/model.safetensors"))
    assert of_any_source("memory://bucket/models/one/model.safetensors") == alone
    assert of_any_source(f"{web}/models/one/model.safetensors") == alone


@pytest.mark.usefixtures("memory")
def test_numbers_of_a_store_are_sampled():
    read = audit(AuditRequest(model="memory://bucket/models/one", values=True)).values
    assert read is not None
    assert read.sampled
    assert read.bytes == MODEL.parameters * 4


@pytest.mark.usefixtures("memory")
def test_a_snapshot_of_a_store_is_audited_like_the_store(tmp_path):
    file = tmp_path / "one.json"
    file.write_bytes(dump(snapshot("memory://bucket/models/one")))
    outcomes = [audit("memory://bucket/models/one"), audit(str(file))]
    assert outcomes[0].version == outcomes[1].version
    assert len({outcome.verdict for outcome in outcomes}) == 1


def test_the_version_is_of_the_listing(memory):
    before = audit("memory://bucket/models/one").version
    assert audit("memory://bucket/models/one").version == before
    memory.pipe("/bucket/models/one/README.md", b"# another model")
    assert audit("memory://bucket/models/one").version != before


def test_an_object_that_stands_for_a_folder_is_no_file(memory, monkeypatch):
    find = type(memory).find

    def find_with_markers(self, path, **options):
        marker = {"size": 0, "type": "directory"}
        root = self._strip_protocol(path)
        return {
            root: marker,
            f"{root}/old/": {"size": 0, "type": "file"},
            **find(self, path, **options),
        }

    monkeypatch.setattr(type(memory), "find", find_with_markers)
    outcome = audit("memory://bucket/models/one")
    assert {file.name for file in outcome.files} == set(FILES)
    assert outcome.verdict == "clean"


def test_a_checkpoint_that_changes_while_it_is_read_is_no_report(memory, monkeypatch):
    read = type(memory).cat_file

    def read_and_change(self, path, **span):
        content = read(self, path, **span)
        if path.endswith("model.safetensors"):
            memory.pipe("/bucket/models/one/model.safetensors", WEIGHTS)
        return content

    monkeypatch.setattr(type(memory), "cat_file", read_and_change)
    outcome = audit("memory://bucket/models/one")
    assert outcome.reason == Reason.COMMIT_MOVED
    assert "'model.safetensors' changed" in outcome.detail


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("foo://bucket/model", "nothing here reads: Protocol not known: foo"),
        ("dropbox://bucket/model", "needs a package that is not installed"),
        ("simplecache::memory://bucket", "not an address of one store"),
        ("https://example.org/page", "the address of a web server's folder ends in a slash"),
    ],
)
def test_an_address_that_nothing_reads_is_one_line(address, message):
    with pytest.raises(UsageError, match=r"^[^\n]*$") as raised:
        audit(address)
    assert message in str(raised.value)


def test_what_a_store_does_not_have_or_refuses_is_unaudited(memory, monkeypatch):
    assert audit("memory://bucket/none").reason == Reason.NOT_FOUND

    def refuse(_self, path, **_):
        raise PermissionError(f"Forbidden: {path}\nsecond line")

    monkeypatch.setattr(type(memory), "cat_file", refuse)
    outcome = audit("memory://bucket/models/one")
    assert (outcome.reason, "\n" in outcome.detail) == (Reason.DENIED, False)


def test_a_file_that_its_listing_makes_longer_is_an_error(memory, monkeypatch):
    monkeypatch.setattr(type(memory), "cat_file", lambda *_, **__: b"short")
    outcome = audit("memory://bucket/models/one")
    assert outcome.reason == Reason.BAD_RESPONSE


def test_each_topmost_folder_of_a_listing_is_a_model(memory):
    names = ("two/model_index.json", "two/unet/config.json", "two/notes.txt", "three/a/x.gguf")
    for name in (*names, "notes/README.md"):
        memory.pipe(f"/bucket/models/{name}", b"{}")
    place = store.opened(store.StoreAddress("memory://bucket/models"), None, print)
    found = {folder: set(part.files) for folder, part in store.models_in(store.list_files(place))}
    assert found == {
        "one/": set(FILES),
        "two/": {"model_index.json", "unet/config.json", "notes.txt"},
        "three/a/": {"x.gguf"},
    }


def sweep(tmp_path: Path, address: str) -> Path:
    output = Output(store=tmp_path / "sweep.sqlite")
    selections = (ModelSelection(address=address),)
    runner.sweep(SweepSettings(selections=selections, policy=Policy(at_once=4), output=output))
    return output.store


def test_a_sweep_over_a_store_has_the_outcomes_of_its_audits(memory, tmp_path, monkeypatch):
    memory.pipe("/bucket/models/two/config.json", FILES["config.json"])
    memory.pipe("/bucket/models/two/model.safetensors", WEIGHTS[:-4])
    path = sweep(tmp_path, "memory://bucket/models")
    with Store.open(path) as stored:
        night = stored.nights()[-1]
        outcomes = {one.model: one.outcome for one in stored.results(night.night)}
    for address, outcome in outcomes.items():
        assert outcome["version"] == audit(address).version
        assert outcome["verdict"] == audit(address).verdict
    assert {one["verdict"] for one in outcomes.values()} == {"clean", "findings"}

    def read(*_):
        raise SourceError(Reason.UNREACHABLE, "an unchanged model is not read")

    monkeypatch.setattr(store, "read", read)
    sweep(tmp_path, "memory://bucket/models")
    with Store.open(path) as stored:
        assert all(one.verdict != "unaudited" for one in stored.results(night.night))


def test_a_store_without_versions_is_not_swept(web, tmp_path):
    with Store.open(sweep(tmp_path, f"{web}/models")) as stored:
        [result] = stored.results(stored.nights()[-1].night)
    assert result.reason == Reason.BAD_REQUEST
