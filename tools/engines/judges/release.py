"""Ask one release of transformers about its configs, classes and small saves.

It runs with that release on its path: `table OUT`, `write FOLDER [CLASS...]`, `read FOLDER... OUT`.
What the file OUT has is not asked again.
"""

# ruff: noqa: BLE001 - a release raises what it likes

import inspect
import json
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[2]))
from engines.judges.release_table import (
    MANY,
    USUAL,
    Config,
    auto_classes,
    error_text,
    fill,
    hollow,
    kind_of,
)

warnings.simplefilter("ignore")
transformers.logging.set_verbosity(50)
transformers.utils.logging.disable_progress_bar()
torch.set_num_threads(1)

_TOLERANCE = 1e-4
_AT_ONCE = 100  # answers between two writes of the file


def inputs_for(model: Any) -> Config:
    """Return inputs of a model, by its main input."""
    config, main = model.config, model.main_input_name
    text = config.get_text_config()
    vocabulary = getattr(text, "vocab_size", 0) or 0
    ids = (torch.arange(11) * 7 % max(min(vocabulary, 90) - 10, 2) + 5)[None]
    if main == "input_ids":
        found = {"input_ids": ids}
    elif main == "pixel_values":
        size = getattr(config, "image_size", 32)
        height, width = size if isinstance(size, list | tuple) else (size, size)
        channels = getattr(config, "num_channels", 3)
        found = {"pixel_values": torch.sin(torch.arange(channels * height * width).float())}
        found["pixel_values"] = found["pixel_values"].reshape(1, channels, height, width)
    elif main == "input_values":
        found = {main: torch.sin(torch.arange(4000).float())[None]}
    elif main == "input_features":
        mels = getattr(config, "num_mel_bins", 80)
        frames = 2 * getattr(config, "max_source_positions", 50)
        found = {main: torch.sin(torch.arange(mels * frames).float()).reshape(1, mels, frames)}
    else:
        raise ValueError(main)
    if getattr(config, "is_encoder_decoder", False):
        found["decoder_input_ids"] = ids[:, :5]
    return found


def outputs_of(model: Any) -> list[torch.Tensor]:
    """Return the first tensors that a model puts out for its inputs."""
    model = model.eval().float()
    torch.manual_seed(0)
    with torch.no_grad():
        made = model(**inputs_for(model))
    values = made.to_tuple() if hasattr(made, "to_tuple") else made
    return [one for one in values if isinstance(one, torch.Tensor) and one.is_floating_point()][:2]


def write(folder: Path, class_name: str) -> None:
    """Write a small save of a class with trained-looking numbers, and its outputs."""
    meta = hollow(class_name)
    if sum(one.numel() for one in meta.state_dict().values()) > MANY // 2:
        raise ValueError("a small save is large")
    torch.manual_seed(0)
    model = type(meta)(meta.config)
    with torch.no_grad():
        for one in model.parameters():
            one.add_(torch.randn_like(one) * 0.1)
    model.save_pretrained(folder)
    stored = load_file(folder / "model.safetensors")
    extras = {
        name: buffer.contiguous().clone()
        for name, buffer in model.named_buffers()
        if name not in model.state_dict()
    }
    if extras:
        save_file({**stored, **extras}, folder / "extras.safetensors", {"format": "pt"})
    (folder / "kinds.json").write_text(
        json.dumps({kind_of(name): list(one.shape) for name, one in stored.items()})
    )
    if "save_original_format" in inspect.signature(model.save_pretrained).parameters or (
        int(transformers.__version__.partition(".")[0]) >= 5
    ):
        fused = folder / "fused"
        model.save_pretrained(fused, save_original_format=False)
        if set(load_file(fused / "model.safetensors")) == set(stored):
            for one in fused.iterdir():
                one.unlink()
            fused.rmdir()
    with suppress(Exception):
        outputs = outputs_of(model)
        save_file({str(at): one.contiguous() for at, one in enumerate(outputs)}, folder / "out.st")


def read(folder: Path, file: str = "") -> Config:
    """Return what a release makes of a small save."""
    answer: Config = {}
    source = folder
    try:
        config = transformers.AutoConfig.from_pretrained(source)
        cls = getattr(transformers, folder.parent.name if folder.name == "fused" else folder.name)
    except Exception as error:
        return {"error": f"config: {error_text(error)}"}
    keywords: Config = {"output_loading_info": True}
    if file:
        keywords |= {"state_dict": load_file(folder / file), "config": config}
        source = None
    try:
        model, info = cls.from_pretrained(source, **keywords)
    except Exception as error:
        return {"error": f"load: {error_text(error)}"}
    for key in ("missing_keys", "unexpected_keys"):
        if found := sorted({kind_of(one) for one in info[key]}):
            answer[key.partition("_")[0]] = found
    if found := info.get("mismatched_keys"):
        answer["mismatched"] = len(found)
    out = (folder if (folder / "out.st").exists() else folder.parent) / "out.st"
    if not file and out.exists():
        wanted = load_file(out)
        try:
            outputs = outputs_of(model)
            equal = all(
                one.shape == wanted[str(at)].shape
                and torch.allclose(one, wanted[str(at)], atol=_TOLERANCE, rtol=1e-3)
                for at, one in enumerate(outputs)
            )
            answer["equal"] = equal and len(outputs) == len(wanted)
        except Exception as error:
            answer["forward"] = error_text(error)
    return answer


def write_all(top: Path, names: list[str]) -> None:
    """Write a small save of each class into a folder of its own, or the error."""
    for class_name in names or auto_classes():
        folder = top / class_name
        if folder.exists() and not (folder / "error").exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "error").unlink(missing_ok=True)
        try:
            write(folder, class_name)
        except Exception as error:
            (folder / "error").write_text(error_text(error))


def read_all(tops: list[Path], target: Path, results: Config) -> None:
    """Read the saves that were not read yet, usual classes first; keep the answers as they come."""
    folders = sorted(
        (one for top in tops for one in top.iterdir()),
        key=lambda folder: (USUAL.search(folder.name) is None, folder.name, folder.parent.name),
    )
    for folder in folders:
        key = f"{folder.parent.name}/{folder.name}"
        if (folder / "error").exists() or not (folder / "config.json").exists() or key in results:
            continue
        if len(results) % _AT_ONCE == 0:
            target.write_text(json.dumps(results, sort_keys=True))
        found = {"save": read(folder)}
        if (folder / "fused").exists():
            found["fused"] = read(folder / "fused")
        if (folder / "extras.safetensors").exists():
            found["extras"] = read(folder, "extras.safetensors")
        results[key] = found


def main(arguments: list[str]) -> None:
    """Run one command."""
    verb, *rest = arguments
    if verb == "write":
        write_all(Path(rest[0]), rest[1:])
        return
    *tops, target = map(Path, rest)
    known: Config = json.loads(target.read_bytes()) if target.exists() else {}
    if verb == "table":
        fill(known)
    else:
        read_all(tops, target, known)
    target.write_text(json.dumps(known, sort_keys=True))


if __name__ == "__main__":
    main(sys.argv[1:])
