"""Record what llama.cpp's own loader needs, by architecture: `python -m engines.runtime_record`.

It keeps the architectures that the data file has, so that it can be stopped and started again.
"""

import argparse
import datetime as dt
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engines import vocabularies
from engines.judging import Judge
from engines.record import text_of
from engines.runtime import Learner
from engines.runtime_forms import Forms

_HERE = Path(__file__).parent
DATA = _HERE.parents[1] / "auditor" / "data" / "engines" / "llama.cpp.json"
JUDGE = _HERE / "judges" / "llama.py"


def main(arguments: Sequence[str] | None = None) -> None:
    """Record architectures into the data file."""
    parser = argparse.ArgumentParser(prog="engines.runtime_record", description=__doc__)
    parser.add_argument("names", nargs="*", help="architectures; by default all")
    parser.add_argument("--python", default=".venv/engines/llama/bin/python")
    parser.add_argument("--output", type=Path, default=DATA)
    parser.add_argument("--folder", help="where the small files are written")
    options = parser.parse_args(arguments)
    command = (options.python, "-P", str(JUDGE))
    with (
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
        Judge(command, Path(folder, "log")) as judge,
    ):
        names = judge.registered()
        data = json.loads(options.output.read_bytes()) if options.output.exists() else {}
        if data.get("version") != names["version"]:
            data = {"entries": {}}
        data |= {key: names[key] for key in ("engine", "version", "with")}
        data["registered"] = names["architectures"]
        data["date"] = dt.datetime.now(tz=dt.UTC).date().isoformat()
        for name in options.names or names["architectures"]:
            if name in data["entries"]:
                continue
            started = time.monotonic()
            learner = Learner(judge, Path(folder, "one.gguf"), name, names)
            data["entries"][name] = entry_of(learner, names)
            options.output.write_text(text_of(data))
            found = len(data["entries"][name].get("forms", ()))
            seconds = time.monotonic() - started
            print(f"{name}: {found} forms, {learner.asked} files, {seconds:.0f} s", flush=True)
        if "vocabulary" not in data:
            data["vocabulary"] = vocabularies.recorded(judge, Path(folder, "one.gguf"), names)
            options.output.write_text(text_of(data))


def entry_of(learner: Learner, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of an architecture, its shapes as positions in a list of expressions."""
    forms = Forms(learner, names["tensors"])
    try:
        forms.learn()
    except Exception as error:  # noqa: BLE001 - an architecture must not end the run
        return {"not_tried": f"{type(error).__name__}: {error}"[:160]}
    if not forms.found:
        return {"not_tried": (forms.errors or ["no file loads"])[-1].rpartition("model: ")[2][:160]}
    dims: dict[str, int] = {}

    def place(expression: str) -> int:
        return dims.setdefault(expression, len(dims))

    def placed(shapes: Mapping[str, list[str] | None]) -> dict[str, list[int] | None]:
        return {k: None if s is None else [place(one) for one in s] for k, s in shapes.items()}

    for form in forms.found:
        for list_ in form["lists"].values():
            for group in list_["groups"]:
                group["needs"] = placed(group["needs"])
                group["may"] = placed(group.get("may", {}))
                for one in group.get("instead", {}).values():
                    if one:
                        one["shape"] = placed({"": one["shape"]})[""]
    types = dict(sorted(forms.reads.items()))
    by_block = sorted({key for form in forms.found for key in form.pop("by_block")})
    heads = {"other_heads": True} if forms.other_heads() else {}
    return {**heads, "types": types, "lists": by_block, "forms": forms.found, "dims": list(dims)}


if __name__ == "__main__":
    main()
