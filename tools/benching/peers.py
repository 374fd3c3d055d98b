"""Other tools that read a checkpoint's headers over HTTP, each as the command of one process.

All but huggingface_hub stand in a folder of their own, `make bench` puts them there:

    PEERS/hf-mem         pip install --target
    PEERS/node_modules   npm install --prefix PEERS
"""

import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.metadata import distributions, version
from pathlib import Path
from typing import NamedTuple

from benching import measure

Command = tuple[str, ...]


class Peer(NamedTuple):
    """A tool that is installed."""

    name: str  # with its version
    # Of a model's id, the URL of its one weight file or None, and the Hub's; None: it has no way
    # to be asked about such a model.
    command: Callable[[str, str | None], Command | None]
    says: Callable[[str], int]  # what it printed -> parameters


class Absent(NamedTuple):
    """A tool that is not."""

    name: str
    install: str


def find(folder: Path) -> tuple[tuple[Peer, ...], tuple[Absent, ...]]:
    """The peers that are installed there, and how to install the others."""
    found = (_huggingface_hub(), _hf_mem(folder), _huggingface_js(folder), _gguf(folder))
    peers = tuple(one for one in found if isinstance(one, Peer))
    return peers, tuple(one for one in found if isinstance(one, Absent))


def _huggingface_hub() -> Peer:
    return Peer(
        name=f"huggingface_hub {version('huggingface_hub')}",
        command=lambda model, _url: measure.peer(model),
        says=int,
    )


# --- hf-mem -----------------------------------------------------------------------------------

# Its console script; but the Hub's address is fixed in hf-mem, so that it is exchanged here.
_HF_MEM = """
import os, sys
sys.path.insert(0, {folder!r})
import httpx2

class Client(httpx2.AsyncClient):
    def build_request(self, method, url, **more):
        url = str(url).replace("https://huggingface.co", os.environ["HF_ENDPOINT"], 1)
        return super().build_request(method, url, **more)

httpx2.AsyncClient = Client
from hf_mem.cli import main
main()
"""


def _hf_mem(folder: Path) -> Peer | Absent:
    place = folder / "hf-mem"
    found = [one.version for one in distributions(name="hf-mem", path=[str(place)])]
    if not found:
        return Absent("hf-mem", f"pip install --target {place} hf-mem")
    code = _HF_MEM.format(folder=str(place))

    def command(model: str, _url: str | None) -> Command:
        return sys.executable, "-c", code, "--model-id", model, "--json-output", "--details"

    return Peer(f"hf-mem {found[0]}", command, _hf_mem_says)


def _hf_mem_says(printed: str) -> int:
    """Its counts are by component, and where they are GGUF's by file before that."""
    memory = json.loads(printed)["memory"]
    files = [memory] if "components" in memory else list(memory.values())
    return sum(one["param_count"] for file in files for one in file["components"].values())


# --- @huggingface/hub and @huggingface/gguf -----------------------------------------------------

_HUGGINGFACE_JS = """
const [folder, repo] = process.argv.slice(1);
const hubUrl = process.env.HF_ENDPOINT;
require(folder).parseSafetensorsMetadata({ repo, hubUrl, computeParametersCount: true }).then(
  (read) => console.log(String(Object.values(read.parameterCount).reduce((a, b) => a + b, 0))),
  (error) => { console.error(String(error)); process.exitCode = 1; },
);
"""
_GGUF = """
const [folder, url] = process.argv.slice(1);
require(folder).gguf(url, { computeParametersCount: true }).then(
  (read) => console.log(String(read.parameterCount)),
  (error) => { console.error(String(error)); process.exitCode = 1; },
);
"""


def _huggingface_js(folder: Path) -> Peer | Absent:
    def command(node: str, place: Path, model: str, _url: str | None) -> Command:
        return node, "-e", _HUGGINGFACE_JS, str(place), model

    return _of_node(folder, "@huggingface/hub", command)


def _gguf(folder: Path) -> Peer | Absent:
    def command(node: str, place: Path, _model: str, url: str | None) -> Command | None:
        return (node, "-e", _GGUF, str(place), url) if url and url.endswith(".gguf") else None

    return _of_node(folder, "@huggingface/gguf", command)


def _of_node(
    folder: Path, name: str, command: Callable[[str, Path, str, str | None], Command | None]
) -> Peer | Absent:
    place = (folder / "node_modules" / name).absolute()
    node = shutil.which("node")
    if node is None or not (place / "package.json").is_file():
        needs = "" if node else " (and node 20)"
        return Absent(name, f"npm install --prefix {folder} {name}{needs}")
    package = json.loads((place / "package.json").read_text(encoding="utf-8"))
    return Peer(f"{name} {package['version']}", partial(command, node, place), int)


def lines(absent: Sequence[Absent]) -> Iterator[str]:
    """One for each tool that is not installed."""
    for one in absent:
        yield f"Not measured, not installed: {one.name}; `{one.install}`, or `make bench`."
