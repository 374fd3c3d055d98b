"""Other tools on the same six folders, beside `audit`: `make peers` writes docs/peers.md.

transformers, huggingface_hub and accelerate are those of the tests; the others are installed into
an environment of their own, the folder `--tools`. A tool for the Hub reads the folders from a Hub
on loopback; Netron draws a folder's index or its only file in headless Chromium, if that is
installed. A cell is a line of a tool's output; the outputs below the table are cut to ten lines.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple
from venv import EnvBuilder

from benching.peers import _HF_MEM
from rewrite_documents import AUDIT, DOCS, marked
from support import chromium
from support.hub import Hub
from support.six_folders import ARCHITECTURE, six_folders

PACKAGES = {"hf-mem": "0.5.6", "modelaudit": "0.2.54", "torchinfo": "1.8.0", "netron": "9.3.3"}
_LINES, _WIDTH = 10, 110  # of an output below the table

_OF_MODEL = f"""
import sys, transformers
from transformers import {ARCHITECTURE} as Model, AutoConfig
folder = sys.argv[1]
"""
_TRANSFORMERS = f"""{_OF_MODEL}
model, info = Model.from_pretrained(folder, output_loading_info=True)
keys = ("missing_keys", "unexpected_keys", "mismatched_keys")
print(*(f"{{len(info[key])}} {{key}}" for key in keys), sep=", ")
"""
_HUGGINGFACE_HUB = f"""{_OF_MODEL}
from huggingface_hub import load_torch_model
found = load_torch_model(Model(AutoConfig.from_pretrained(folder)), folder, strict=False)
print(f"{{len(found.missing_keys)}} missing_keys, {{len(found.unexpected_keys)}} unexpected_keys")
"""
_ACCELERATE = f"""{_OF_MODEL}
from accelerate import load_checkpoint_in_model
load_checkpoint_in_model(Model(AutoConfig.from_pretrained(folder)), folder)
print("returns")
"""
_TORCHINFO = f"""{_OF_MODEL}
sys.path.append(sys.argv[2])
from torchinfo import summary
print(summary(Model(AutoConfig.from_pretrained(folder)), depth=1))
"""


_NETRON = """
import sys, netron
host, port = netron.start(sys.argv[1], browse=False)
print(f"http://{host}:{port}", flush=True)
sys.stdin.read()
"""


class Ran(NamedTuple):
    """What a process printed, and its exit code."""

    code: int
    text: str


class Tool(NamedTuple):
    """A tool: how to run it on a folder, and which line of its output is the cell."""

    name: str
    question: str
    run: Callable[[Path], Ran]
    line: str = ""  # a pattern of the line for the table; else the last one


def main() -> None:
    parser = argparse.ArgumentParser(prog="peers", description=__doc__)
    parser.add_argument("--tools", type=Path, help="the environment of the other tools")
    parser.add_argument("--peers", type=Path, default=Path(sys.prefix, "peers"))
    options = parser.parse_args()
    tools = (options.tools or options.peers / "tools").resolve()
    absent = install(tools)
    with tempfile.TemporaryDirectory() as name:
        folders = six_folders(Path(name))
        with Hub() as hub:
            for folder in folders.values():
                files = {one.name: one.read_bytes() for one in folder.iterdir()}
                hub.add(f"six/{folder.name}", files)
            asked = [one for one in all_tools(tools, hub.url) if one.name.split()[0] not in absent]
            made = page(asked, folders, absent)
    path = DOCS / "peers.md"
    path.write_text(marked("peers").sub(lambda old: f"{old[1]}{made}{old[3]}", path.read_text()))


def install(tools: Path) -> list[str]:
    """Make the environment; return the tools that cannot be installed."""
    if not (tools / "bin" / "python").exists():
        EnvBuilder(with_pip=True).create(tools)
    absent = []
    for name, release in PACKAGES.items():
        command = [
            tools / "bin" / "python",
            "-m",
            "pip",
            "install",
            "--quiet",
            f"{name}=={release}",
        ]
        if subprocess.run(command, check=False).returncode:  # noqa: S603 - our own command
            absent.append(name)
    return absent


def all_tools(tools: Path, hub: str) -> list[Tool]:
    """Return the tools that are installed, `audit` first."""
    [site] = (tools / "lib").glob("python*/site-packages")
    python = str(tools / "bin" / "python")

    def ours(code: str, *more: str) -> Callable[[Path], Ran]:
        return lambda folder: ran([sys.executable, "-c", code, str(folder), *more], folder)

    def hf_mem(folder: Path) -> Ran:
        code = _HF_MEM.format(folder=str(site))
        return ran(
            [python, "-c", code, "--model-id", f"six/{folder.name}"], folder, HF_ENDPOINT=hub
        )

    def modelaudit(folder: Path) -> Ran:
        return ran(
            [str(tools / "bin" / "modelaudit"), "scan", str(folder), "--format", "json"], folder
        )

    def netron(folder: Path) -> Ran:
        return drawn_by_netron(python, folder)

    def of_tests(name: str, question: str, code: str, line: str = "") -> Tool:
        return Tool(f"{name} {version(name)}", question, ours(code), line)

    def of_peers(name: str, question: str, run: Callable[[Path], Ran], line: str = "") -> Tool:
        return Tool(f"{name} {PACKAGES[name]}", question, run, line)

    return [
        Tool(
            "audit",
            "do the files hold what the config implies?",
            lambda folder: ran([str(AUDIT), str(folder)], folder),
            r"^(OK|ERROR|WARNING)\b",
        ),
        of_tests(
            "transformers",
            "what does from_pretrained load?",
            _TRANSFORMERS,
            r"missing_keys|\bMISMATCH\b|^\S*Error: ",
        ),
        of_tests("huggingface_hub", "what does load_torch_model load?", _HUGGINGFACE_HUB),
        of_tests("accelerate", "can load_checkpoint_in_model load it?", _ACCELERATE),
        of_peers("hf-mem", "how much memory do the weights take?", hf_mem, r"TOTAL|^\S*Error: "),
        of_peers("modelaudit", "is a file dangerous?", modelaudit),
        of_peers(
            "torchinfo",
            "how many parameters does the module have?",
            ours(_TORCHINFO, str(site)),
            "^Total params",
        ),
        *([of_peers("netron", "what does its page draw?", netron)] if chromium.found() else []),
    ]


def ran(command: list[str], folder: Path, **variables: str) -> Ran:
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": "100", "HF_HUB_OFFLINE": "1", **variables}
    env |= {
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TQDM_DISABLE": "1",
        "PROMPTFOO_DISABLE_TELEMETRY": "1",
    }
    if "HF_ENDPOINT" in variables:
        del env["HF_HUB_OFFLINE"]
    done = subprocess.run(  # noqa: S603 - tools that this program has installed
        command, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    text = f"{done.stdout}\n{done.stderr}".replace(str(folder), folder.name)
    text = re.sub(r"[^\s\"']*/site-packages/", "", text.replace(str(folder.parent), ""))
    if "modelaudit" in command[0]:
        text = issues_of(done.stdout) or text
    text = re.sub(r"(http://127\.0\.0\.1):\d+", r"\1", text)  # a free port, another one each time
    return Ran(done.returncode, re.sub(r"\x1b\[[\d;]*m", "", text))


def drawn_by_netron(python: str, folder: Path) -> Ran:
    """Return the text of Netron's page about the index or the only file, in headless Chromium."""
    names = sorted(path.name for path in folder.glob("*.safetensors*"))
    shown = next((name for name in names if name.endswith(".index.json")), names[0])
    command = [python, "-c", _NETRON, str(folder / shown)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        tempfile.TemporaryDirectory() as profile,
        chromium.browser(Path(profile)) as page,
        subprocess.Popen(command, **pipes) as server,  # noqa: S603 - a tool that is installed
    ):
        address = next(line for line in server.stdout if line.startswith("http"))
        page.call("Network.setBlockedURLs", urls=["https://*"])  # where its page reports usage
        page.call("Page.navigate", url=address.strip())
        since = time.monotonic()
        while page.do("document.body?.className") not in {"default", "alert"}:
            if time.monotonic() - since > chromium.PATIENCE:
                return Ran(0, "draws nothing in a minute")
            page.do("document.querySelector('.notification #message-button')?.click()")
        text = page.do("document.body.innerText")
        message = page.do("document.getElementById('message-text').innerText")
        nodes = page.do("document.querySelectorAll('.node-item').length")
    end = f"draws {nodes} nodes" if nodes else message
    return Ran(0, f"{text}\n{end}")


def issues_of(printed: str) -> str:
    """Return modelaudit's issues, a line each."""
    try:
        issues = json.loads(printed)["issues"]
    except (ValueError, KeyError):
        return ""
    lines = [f"{one['severity']}: {one['message']}" for one in issues]
    return "\n".join((*lines, f"{len(issues)} issues"))


def page(tools: list[Tool], folders: Mapping[str, Path], absent: list[str]) -> str:
    """Return the table, and each output below it."""
    outputs = {
        tool.name: {label: tool.run(folder) for label, folder in folders.items()} for tool in tools
    }
    day = datetime.now(UTC).date()
    lines = ["", f"Made on {day} by `make peers` (hf-audit {version('hf-audit')}).", ""]
    lines += [f"Not installed, so not compared: {name}." for name in absent]
    lines += [f"| folder | {' | '.join(tool.name for tool in tools)} |"]
    lines += [f"|---|{'---|' * len(tools)}"]
    lines += [f"| it answers | {' | '.join(tool.question for tool in tools)} |"]
    for label in folders:
        cells = (cell(outputs[tool.name][label], tool) for tool in tools)
        lines.append(f"| {label} | {' | '.join(cells)} |")
    for tool in tools:
        lines += ["", f"## {tool.name}", "", "```text"]
        for label, (code, text) in outputs[tool.name].items():
            shown = [line[:_WIDTH].rstrip() for line in text.splitlines() if line.strip()]
            if code and tool.name != "audit":
                shown = shown[-_LINES:]
            lines += [f"--- {label}: exit code {code}", *shown[:_LINES]]
        lines.append("```")
    return "\n".join((*lines, ""))


def cell(output: Ran, tool: Tool) -> str:
    lines = [line.strip() for line in output.text.splitlines() if line.strip()]
    chosen = [line for line in lines if re.search(tool.line, line)] if tool.line else lines
    line = (chosen if tool.line else chosen[-1:] or [""])[:1] or lines[-1:] or [""]
    text = line[0].replace("|", " ").strip()
    text = re.sub(r"\s+", " ", text)
    return f"{text[:120]}{'...' if len(text) > 120 else ''}" + (
        f" (exit {output.code})" if output.code else ""
    )


if __name__ == "__main__":
    main()
