"""Record which modules vLLM's LoRA layers replace: `python -m engines.lora --python PYTHON`.

A small save of each recorded architecture is built by vLLM, whose code then lists the modules. The
file is written after each architecture; a later run asks only for those that it lacks.
"""

import argparse
import json
import re
import subprocess
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engines import config4, probes, saves

_HERE = Path(__file__).parent
_DATA = _HERE.parents[1] / "auditor" / "data" / "engines"
_NUMBER = re.compile(r"(?<![^.])[0-9]+(?![^.])")


def main(arguments: Sequence[str] | None = None) -> None:
    """Record all architectures of vllm.json that the output lacks, or the named ones."""
    parser = argparse.ArgumentParser(prog="engines.lora", description=__doc__)
    parser.add_argument("names", nargs="*", help="architectures; by default all")
    parser.add_argument("--python", default=".venv/engines/vllm/bin/python")
    parser.add_argument("--output", type=Path, default=_DATA / "vllm.lora.json")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    known = json.loads((_DATA / "vllm.json").read_bytes())
    header = {key: known[key] for key in ("engine", "version", "date")}
    entries: dict[str, Any] = {}
    if options.output.exists():
        old = json.loads(options.output.read_bytes())
        entries = old["entries"] if old["version"] == header["version"] else {}
    wanted = options.names or [name for name in known["entries"] if name not in entries]
    command = (options.python, "-P", str(_HERE / "judges" / "vllm_lora.py"))
    with (
        tempfile.TemporaryDirectory() as top,
        subprocess.Popen(  # noqa: S603 - the judge
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as judge,
    ):
        assert judge.stdin is not None
        assert judge.stdout is not None
        for name in wanted:
            entry = known["entries"][name]
            folder = Path(top, name)
            try:
                if not _written(entry, folder):
                    continue
            except Exception as error:  # noqa: BLE001 - an architecture must not end the run
                print(f"{name}: not built: {error}", flush=True)
                continue
            print(folder, file=judge.stdin, flush=True)
            found = json.loads(judge.stdout.readline())
            entries[name] = found if "error" in found else _folded(found)
            print(name, found.get("error", found.get("supported")), flush=True)
            options.output.write_text(_text({**header, "entries": entries}))


def _written(entry: dict[str, Any], folder: Path) -> bool:
    """Write a small save with the keys that vLLM requires; return whether it is possible."""
    if not entry.get("variants"):
        return False
    sound = next((one for one in entry["variants"] if one["loads"] is True), entry["variants"][0])
    save = saves.build(entry["class"], sound.get("when", {}), {})
    fills = {path: config4.Fill(value, value) for path, value in entry.get("fills", {}).items()}
    probes.write(folder, probes.Written(config4.with_keys(save.config, fills), save.tensors))
    return True


def _folded(found: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with the kinds of modules; a number is a star. Empty values are left out."""
    kinds = sorted({_NUMBER.sub("*", name) for name in found["replaced"]})
    return {key: value for key, value in {**found, "replaced": kinds}.items() if value}


def _text(data: dict[str, Any]) -> str:
    lines = (
        f"  {json.dumps(name)}: {json.dumps(entry)}"
        for name, entry in sorted(data["entries"].items())
    )
    head = {key: value for key, value in data.items() if key != "entries"}
    return f'{json.dumps(head)[:-1]}, "entries": {{\n' + ",\n".join(lines) + "\n}}\n"


if __name__ == "__main__":
    main()
