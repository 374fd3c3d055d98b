"""The judge of MLX: whether mlx_lm.utils.load_model takes a folder, one line of JSON for each.

It runs in an environment of its own and imports nothing of this project. `--registered` prints what
mlx-lm registers instead.
"""

import contextlib
import dataclasses
import hashlib
import json
import re
import sys
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Any

import mlx_lm.models
from mlx_lm.utils import MODEL_REMAPPING, _get_classes, load_model

_VALUES = {
    "rope_base": ("base",),
    "eps": ("eps",),
    "sliding_window": ("window_size", "sliding_window"),
    "scale": ("scale",),
}


def registered() -> dict[str, Any]:
    """Return the model types with a module that has a Model and its ModelArgs, and the aliases."""
    folder = Path(mlx_lm.models.__file__).parent
    texts = {path.stem: path.read_text() for path in folder.glob("*.py")}
    model = re.compile(r"^class Model\(|^from .* import .*\bModel\b", re.MULTILINE)
    names = {name for name, text in texts.items() if "ModelArgs" in text and model.search(text)}
    return {
        "engine": "mlx",
        "version": version("mlx-lm"),
        "with": {"mlx": version("mlx")},
        "keyed_by": "model_type",
        "closed": True,
        "registered": sorted(names | set(MODEL_REMAPPING)),
        "aliases": dict(sorted(MODEL_REMAPPING.items())),
    }


def judge(folder: str) -> dict[str, Any]:
    """Return what the loader does with a folder, and which values the model uses.

    A refusal has the numbers that the model would take for keys that the config lacks.
    """
    try:
        model, config = load_model(Path(folder))
    except SystemExit:  # a model that asks for a package of its own
        return {"loads": False, "error": "it asks for a package", "judged": False}
    except Exception as error:  # noqa: BLE001 - whatever the loader raises is the answer
        line = traceback.extract_tb(error.__traceback__)[-1].line
        text = f"{type(error).__name__}: {str(error) or line}"
        return {"loads": False, "error": text, "judged": True, "defaults": defaults(folder)}
    return {"loads": True, "judged": True, "reads": reads(model, config)}


def defaults(folder: str) -> dict[str, int]:
    """Return the model's numbers for keys that a config or its nested text config lacks."""
    config = json.loads(Path(folder, "config.json").read_text())
    found = {}
    for start, inside in (("", config), ("text_config.", config.get("text_config"))):
        with contextlib.suppress(Exception):
            for field in dataclasses.fields(_get_classes(inside)[1]):
                if type(field.default) is int and inside.get(field.name) is None:
                    found[start + field.name] = field.default
    return found


def reads(model: Any, config: Any) -> dict[str, Any]:
    """Return the values that the model's modules use, by name."""
    found: dict[str, set[float]] = {name: set() for name in _VALUES}
    for path, module in model.named_modules():
        if "vision" in path or "visual" in path:
            continue
        for name, attributes in _VALUES.items():
            for attribute in attributes:
                value = getattr(module, attribute, None)
                if type(value) in {int, float}:
                    found[name].add(value)
    seen: dict[str, Any] = {name: sorted(values) for name, values in found.items() if values}
    seen["tied"] = not any(path.endswith("lm_head") for path, _ in model.named_modules())
    packed = [one for _, one in model.named_modules() if getattr(one, "bits", None)]
    seen["schemes"] = sorted({f"{m.mode}, {m.bits} bits, groups of {m.group_size}" for m in packed})
    text = repr(_get_classes(config)[1].from_dict(config))
    for path, module in model.named_modules():
        own = {k: v for k, v in vars(module).items() if type(v) in {int, float, bool, str}}
        text += f"{path} {type(module).__name__} {sorted(own.items())}"
    return {**seen, "fingerprint": hashlib.sha256(text.encode()).hexdigest()}


def main() -> None:
    """Judge the folders that standard input lists."""
    if sys.argv[1:] == ["--registered"]:
        print(json.dumps(registered()))
        return
    for line in sys.stdin:
        folder = line.rstrip("\n")
        with contextlib.redirect_stdout(sys.stderr):
            outcome = judge(folder)
        print(json.dumps({"folder": folder, **outcome}), flush=True)


if __name__ == "__main__":
    main()
