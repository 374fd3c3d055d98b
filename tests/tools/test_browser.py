"""The page of `make browser`, in Chromium: its reports are those of the command."""

import json
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browser.build import build
from support import chromium, pipelines, small_adapters
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.hostile_checkpoints import hostile_folders
from support.running import run
from support.torch_files import torch_bytes

PACKAGES = Path(sys.prefix) / "browser"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(chromium.found() is None, reason="Chromium is not installed"),
    pytest.mark.skipif(not PACKAGES.exists(), reason="Pyodide is not installed: make browser"),
]
TENSORS = {one.name: ("F32", one.shape) for one in stored_by(expect("BertModel"))}
BERT = {
    "config.json": config_bytes(architectures=["BertModel"]),
    "model.safetensors": safetensors_bytes(TENSORS),
}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Any static server serves the built page."""
    folder = tmp_path_factory.mktemp("built")
    build(PACKAGES, folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


@pytest.fixture(scope="module")
def page(address, tmp_path_factory):
    with chromium.browser(tmp_path_factory.mktemp("profile")) as running:
        running.call("Page.navigate", url=address)
        until(running, "document.readyState === 'complete' && location.href !== 'about:blank'")
        yield running
        assert running.complaints == []


STATUS = "document.getElementById('status').textContent"


def until(page, condition):
    """Ask again and again, each time until the page answers."""
    end = time.monotonic() + chromium.PATIENCE
    while not (condition() if callable(condition) else page.do(condition)):
        assert time.monotonic() < end, condition


def ended(page, give, *given):
    """The page's status once it has audited what it is given."""
    page.do(f"{STATUS} = ''")
    give(page, *given)
    until(page, f"{STATUS} && !{STATUS}.startsWith('Auditing')")
    return page.do(STATUS)


def downloaded(page, folder):
    """The JSON that the page offers."""
    page.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
    page.do("document.getElementById('json').click()")
    file = folder / "report.json"
    until(page, lambda: file.exists() and file.read_bytes().endswith(b"}\n"))
    return without_cost(json.loads(file.read_text()))


def by_command(model, **given):
    return without_cost(json.loads(run(model, "--format", "json", **given).stdout))


def choose(page, folder):
    root = page.call("DOM.getDocument")["root"]["nodeId"]
    node = page.call("DOM.querySelector", nodeId=root, selector="#folder")["nodeId"]
    page.call("DOM.setFileInputFiles", nodeId=node, files=[str(folder)])


def drop(page, folder):
    box = "document.getElementById('drop').getBoundingClientRect()"
    place = {"x": page.do(f"{box}.x") + 9, "y": page.do(f"{box}.y") + 9}
    data = {"items": [], "files": [str(folder)], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        page.call("Input.dispatchDragEvent", type=kind, data=data, **place)


def ask(page, model, endpoint):
    page.do(
        f"(() => {{ document.getElementById('model').value = {json.dumps(model)};"
        f"document.getElementById('endpoint').value = {json.dumps(endpoint)};"
        "document.getElementById('hub').requestSubmit(); })()"
    )


def without_cost(outcome):
    return {key: value for key, value in outcome.items() if key != "fetched"}


def sharded():
    """More shards than are read without threads elsewhere; the last one is missing."""
    names = sorted(TENSORS)
    shards = {name: f"model-{number % 7}.safetensors" for number, name in enumerate(names)}
    files = {
        shard: safetensors_bytes({name: TENSORS[name] for name in names if shards[name] == shard})
        for shard in sorted({*shards.values()})[:-1]
    }
    index = json.dumps({"metadata": {}, "weight_map": shards}).encode()
    return {**files, "model.safetensors.index.json": index, "config.json": BERT["config.json"]}


FOLDERS = {
    "whole": BERT,
    "incomplete": {
        **BERT,
        "model.safetensors": safetensors_bytes(dict(sorted(TENSORS.items())[3:])),
        "generation_config.json": b'{"eos_token_id": 5}',
    },
    "sharded": sharded(),
    "torch": {"config.json": BERT["config.json"], "pytorch_model.bin": torch_bytes(TENSORS)},
    "pipeline": pipelines.encoders(),
    "constructor of things": {**BERT, "constructor/config.json": b"{", ".git/x.bin": b"no model"},
    "template": {
        **BERT,
        "tokenizer_config.json": json.dumps({"chat_template": "[" * 2_000 + "{{ ["}).encode(),
        "chat_template.jinja": b"{% for one in messages %}{{ one.content }}{% endfor %}",
    },
    "deep": {**BERT, "chat_template.jinja": b"{{" + b"[" * 39 + b"1" + b"]" * 39 + b"}}"},
    "nothing": {"README.md": b"no model"},
}


@pytest.mark.parametrize("give", [choose, drop])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_has_the_json_of_the_command(name, give, page, tmp_path):
    folder = Path(pipelines.written(tmp_path / name, FOLDERS[name]))
    assert ended(page, give, folder) == "Done."
    assert downloaded(page, tmp_path) == by_command(name, cwd=tmp_path)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return hostile_folders(tmp_path_factory.mktemp("hostile"))


def test_hostile_names_are_those_of_the_command(page, hostile, tmp_path):
    """But for an unknown type, of which the command asks transformers."""
    for label in hostile.keys() - {"type"}:
        folder, place = hostile[label], tmp_path / label
        place.mkdir()
        assert ended(page, choose, folder) == "Done."
        assert downloaded(page, place) == by_command(folder.name, cwd=folder.parent), label


def test_a_model_of_the_hub_has_the_json_of_the_command(page, at_hub, hub_env, tmp_path):
    at_hub.add("org/base", {"config.json": small_adapters.coded(small_adapters.GPT2)})
    models = {"whole": BERT, "sharded": sharded(), "adapter": small_adapters.files()}
    for name, files in models.items():
        at_hub.add(f"org/{name}", files)
        place = tmp_path / name
        place.mkdir()
        assert ended(page, ask, f"org/{name}", at_hub.url) == "Done."
        assert downloaded(page, place) == by_command(f"org/{name}", env=hub_env), name


def test_what_cannot_be_audited_is_a_status_or_an_outcome(page, at_hub, tmp_path):
    assert "org/name/x" in ended(page, ask, "org/name/x", at_hub.url)
    assert "expected the id" in ended(page, ask, "/python", at_hub.url)
    assert ended(page, ask, "org/none", at_hub.url) == "Done."
    assert downloaded(page, tmp_path)["reason"] == "not-found"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_no_fault_before_and_after_an_audit(dark, page, tmp_path):
    page.call("Page.reload")
    until(page, "document.readyState === 'complete'")
    folder = Path(pipelines.written(tmp_path / "whole", BERT))
    for give in (None, choose):
        if give:
            assert ended(page, give, folder) == "Done."
        for width in (390, 1280, 1920):
            page.shape(dark=dark, width=width)
            assert page.do("document.documentElement.scrollWidth <= innerWidth"), width
            assert page.axe() == [], width


OTHERS = {
    "an inline script": ("script", "textContent", "window.ran = true", "script-src-elem"),
    "a script of another host": ("script", "src", "http://127.0.0.1:9/x.js", "script-src-elem"),
    "an inline style": ("style", "textContent", "p { color: red }", "style-src-elem"),
    "a picture": ("img", "src", "http://127.0.0.1:9/x.png", "img-src"),
    "a frame": ("iframe", "src", "http://127.0.0.1:9/", "frame-src"),
}


def test_the_policy_of_the_page_lets_nothing_in_but_its_own(address, tmp_path):
    with chromium.browser(tmp_path) as own:
        own.call("Page.navigate", url=address)
        until(own, "document.readyState === 'complete' && location.href !== 'about:blank'")
        for label, (tag, field, value, directive) in OTHERS.items():
            refused = own.do(
                "new Promise((done) => {"
                "document.addEventListener('securitypolicyviolation',"
                " (event) => done(event.effectiveDirective), { once: true });"
                f"const one = document.createElement('{tag}');"
                f"one['{field}'] = {json.dumps(value)}; document.body.append(one); }})"
            )
            assert refused == directive, label
        assert own.do("window.ran") is None
