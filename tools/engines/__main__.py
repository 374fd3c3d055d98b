"""Record what engines' own loaders take: `make engines`, ARGS="mlx llama" for some entries.

It writes auditor/data/engines/ENGINE.json, or the given file.
"""

import argparse
import datetime
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from engines.judging import Judge
from engines.record import Entry, Recorder, fold, text_of

_HERE = Path(__file__).parent
_DATA = _HERE.parents[1] / "auditor" / "data" / "engines"
_JUDGES = {"mlx": "mlx.py", "llama.cpp": "converter.py", "vllm": "vllm.py"}
_QUICK = {"mlx", "llama.cpp"}  # engines for which a config of its own costs nothing


def main(arguments: Sequence[str] | None = None) -> None:
    """Record the entries of one engine."""
    parser = argparse.ArgumentParser(prog="engines", description=__doc__)
    parser.add_argument("engine", choices=sorted(_JUDGES))
    parser.add_argument("names", nargs="*", help="entries; by default all that it registers")
    parser.add_argument("--python", default=sys.executable, help="the judge's interpreter")
    parser.add_argument("--output", type=Path, help="the data file")
    parser.add_argument("--update", action="store_true", help="keep the file's other entries")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    output = options.output or _DATA / f"{options.engine}.json"
    # A judge is called as its engine is: -P keeps its folder off the path.
    command = [options.python, "-P", str(_HERE / "judges" / _JUDGES[options.engine])]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Judge(command, Path(folder, "log")) as judge:
        header = judge.registered()
        recorder = Recorder(
            judge, Path(folder), header["keyed_by"], every_key=options.engine in _QUICK
        )
        entries: dict[str, Entry] = {}
        for name in options.names or header["registered"]:
            entries[name] = recorder.entry(name)
            print(_line(name, entries[name]), flush=True)
        asked = recorder.asked
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    data = fold(header, today, entries)
    if options.update and output.exists():
        data["entries"] = json.loads(output.read_bytes())["entries"] | data["entries"]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text_of(data))
    print(f"{asked} folders in {time.monotonic() - started:.0f} s; {output.stat().st_size} bytes")


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
