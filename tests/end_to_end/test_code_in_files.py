"""What a folder without an audit may run, in every format and with an exit code that is not 0."""

import csv
import json
import os
import pickle
import re
import tempfile
from pathlib import Path

from support.checkpoints import config_bytes
from support.running import run


class Called:
    def __reduce__(self):
        return os.system, ("id",)


CONFIG = {"config.json": config_bytes(architectures=["BertModel"])}
FOLDERS = {
    "a config alone": CONFIG,
    "no weights": {},
    "other weights": {**CONFIG, "onnx/model.onnx": b"x"},
}
READS = {
    "json": lambda text: [one["file"] for one in json.loads(text)["findings"]],
    "sarif": lambda text: [
        place["physicalLocation"]["artifactLocation"]["uri"].rpartition("/")[2]
        for one in json.loads(text)["runs"][0]["results"]
        for place in one["locations"]
    ],
    "csv": lambda text: [row["file"] for row in csv.DictReader(text.splitlines())],
    "html": lambda text: re.findall(r"head\.dill(?=[^<]* is a pickle)", text),
    "markdown": lambda text: re.findall(r"head\.dill", text),
    "terminal": lambda text: re.findall(r"unsafe \((head\.dill)\)", text),
}


def test_every_format_shows_what_an_unaudited_folder_runs(subtests, tmp_path):
    for files in FOLDERS.values():
        with subtests.test(files=files):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            for name, content in {**files, "head.dill": pickle.dumps(Called())}.items():
                (place / "model" / name).parent.mkdir(parents=True, exist_ok=True)
                (place / "model" / name).write_bytes(content)
            out = place / "out"
            for form, read in READS.items():
                options = ["-o", str(out)] if form == "csv" else []
                ended = run(str(place / "model"), "--format", form, *options)
                text = (out / "findings.csv").read_text() if form == "csv" else ended.stdout
                assert ended.returncode in {1, 3}
                assert "head.dill" in read(text), form
