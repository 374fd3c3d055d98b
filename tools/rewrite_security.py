"""Writes the bounds of the code into SECURITY.md: `python tools/rewrite_security.py`."""

import re
from pathlib import Path

from auditor import findings, tensors
from auditor.analytic import blocks
from auditor.audit import outcome
from auditor.bounded import json_text, pickle_machine
from auditor.checkpoint import snapshot_reader
from auditor.containers import dcp, index, manifest, torch_archive
from auditor.downloader import (
    assemble,
    folder_listing,
    headers,
    http,
    hub,
    model_list,
    retry,
)
from auditor.oracle import server

SECURITY = Path(__file__).resolve().parent.parent / "SECURITY.md"
BYTES = 2**20
TABLE = re.compile(r"(<!-- bounds -->\n).*?(<!-- end of bounds -->)", re.DOTALL)


def mib(size: int) -> str:
    assert size % BYTES == 0
    return f"{size // BYTES} MiB"


BOUNDS = (
    ("the header of a safetensors file", mib(headers.FILE.size)),
    ("tensors in it", f"{headers.FILE.tensors:,}"),
    ("characters of their names", f"{tensors.MAX_CHARACTERS:,}, or {tensors.MAX_AVERAGE} a name"),
    ("safetensors headers of one model", mib(headers.MODEL.size)),
    ("tensors in them", f"{headers.MODEL.tensors:,}"),
    ("JSON values of one header", f"{json_text.MAX_VALUES:,}"),
    ("an index", mib(index.MAX_INDEX)),
    ("files that an index names", f"{index.MAX_SHARDS:,}"),
    ("tensors that an index names", f"{index.MAX_NAMES:,}"),
    ("JSON values of a config", f"{json_text.MAX_TEXT_VALUES:,}"),
    ("levels of JSON", f"{json_text.MAX_DEPTH:,}"),
    ("digits of an integer", f"{json_text.MAX_DIGITS:,}"),
    ("a config", mib(assemble.MAX_CONFIG)),
    ("tensors that a config implies", f"{blocks.MAX_TENSORS:,}"),
    ("a manifest of several models", mib(manifest.MAX_MANIFEST)),
    ("models in one repository", f"{manifest.MAX_COMPONENTS:,}"),
    ("bytes that are read of a torch file or GGUF", mib(headers.MAX_PARTS)),
    ("reads of such a file", f"{headers.MOST_READS:,}"),
    ("a pickle", mib(pickle_machine.MAX_PICKLE)),
    (
        "its opcodes, of which one that makes a container counts as five",
        f"{pickle_machine.MAX_STEPS:,}",
    ),
    ("the .metadata of a distributed checkpoint", mib(dcp.MAX_METADATA)),
    ("the directory of a zip archive", mib(torch_archive.MAX_DIRECTORY)),
    ("imports that a finding lists", f"{pickle_machine.MAX_LINES:,}"),
    ("pickles beside the weights of a folder", f"{assemble._MOST_PICKLES:,}"),
    ("other files of a folder in which code is looked for", f"{assemble._MOST_OTHERS:,}"),
    ("a snapshot file, without gzip", mib(snapshot_reader.MAX_SNAPSHOT)),
    ("its JSON values", f"{snapshot_reader.MAX_VALUES:,}"),
    ("texts and copies of weights in it, unpacked", mib(snapshot_reader.MAX_OTHERS)),
    ("files and folders of a folder", f"{folder_listing.MAX_ENTRIES:,}"),
    ("the Hub's listing of one model", mib(hub.MAX_LISTING)),
    ("a page of its list of models", mib(model_list.MAX_PAGE)),
    ("pages of that list", f"{model_list.MAX_PAGES:,}"),
    ("files of one model in it", f"{model_list.MAX_FILES:,}"),
    ("seconds in which one request goes unanswered", f"{retry.MOST_SILENCE:.0f}"),
    ("seconds that a server can have us wait for", f"{retry.WINDOW:,}"),
    ("redirects", f"{http._MOST_REDIRECTS:,}"),
    ("names of unexpected tensors that a finding lists", f"{findings.MOST_NAMED:,}"),
    ("module rows of a report, unexpected ones", f"{outcome.MOST_STRANGE_MODULES:,}"),
    ("seconds in which transformers answers", f"{server.MOST_SECONDS:,}"),
    ("memory in which it does", mib(server.MOST_BYTES)),
)


def table() -> str:
    rows = (f"| {what} | {most} |\n" for what, most in BOUNDS)
    return f"\n| of | at most |\n| --- | --: |\n{''.join(rows)}\n"


def rewritten(text: str) -> str:
    return TABLE.sub(lambda block: f"{block[1]}{table()}{block[2]}", text)


if __name__ == "__main__":
    SECURITY.write_text(rewritten(SECURITY.read_text()))
