"""Ask vLLM's own code which modules of a model its LoRA layers replace.

`python -P vllm_lora.py` reads folder paths from standard input and prints one JSON line for each.
It runs in the environment of `vllm.py`, which builds the model. Each model is built in a process
of its own.
"""

import json
import os
import runpy
import sys
import tempfile
from pathlib import Path
from typing import Any

SECONDS = 60


def main() -> None:
    """Answer each line of standard input with a line of JSON."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    judge = runpy.run_path(str(Path(__file__).with_name("vllm.py")))
    judge["prepare"]()
    for line in sys.stdin:
        own, others = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(own)
            link = Path(tempfile.mkdtemp()) / "model"
            link.symlink_to(Path(line.rstrip("\n")).resolve())
            try:
                _, model = judge["build"](str(link))
                found = modules_of(model)
            except BaseException as error:  # noqa: BLE001 - whatever it raises is the answer
                found = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:160]}
            os.write(others, json.dumps(found).encode() + b"\n")
            os._exit(0)
        os.close(others)
        text = judge["read_line"](own, SECONDS) or b'{"error": "Timeout or crash"}\n'
        os.close(own)
        os.kill(process, 9)
        os.waitpid(process, 0)
        answers.write(text.decode())
        answers.flush()


def modules_of(model: Any) -> dict[str, Any]:
    """Return what LoRAModelManager takes from a model, with the modules that it replaces."""
    from vllm.lora import utils
    from vllm.model_executor.models.interfaces import supports_lora, supports_multimodal
    from vllm.model_executor.models.interfaces_base import is_pooling_model

    if not supports_lora(model):
        return {"error": f"{type(model).__name__} does not support LoRA"}
    supported = sorted(utils.get_supported_lora_modules(model))
    starts: tuple[str, ...] = ("",)
    if supports_multimodal(model) and hasattr(model, "get_mm_mapping"):
        starts = tuple(model.get_mm_mapping().language_model)
    replaced = [
        name
        for name, module in model.named_modules(remove_duplicate=False)
        if name.startswith(starts) and utils.is_supported_lora_module(name, module, supported)
    ]
    mapper = getattr(model, "hf_to_vllm_mapper", None)
    rename = mapper.get_rename_mapper() if mapper is not None else None
    is_moe = utils.is_moe_model(model)
    packed = utils.process_packed_modules_mapping(model)
    rules = {
        kind: {getattr(old, "pattern", old): new for old, new in getattr(rename, key).items()}
        for kind, key in (
            ("regex", "orig_to_new_regex"),
            ("substr", "orig_to_new_substr"),
            ("prefix", "orig_to_new_prefix"),
            ("suffix", "orig_to_new_suffix"),
        )
        if rename is not None and getattr(rename, key)
    }
    if rename is not None and rename.orig_to_new_renaming:
        rules["renaming"] = {}
    return {
        "class": type(model).__name__,
        "language": starts[0],
        "supported": supported,
        "replaced": replaced,
        "packed": {name: parts for name, parts in packed.items() if name != "experts"},
        "experts": "fused" if is_moe and model.is_3d_moe_weight else "each" if is_moe else "",
        "expert_names": sorted(
            {one.rpartition(".")[2] for one in packed.get("experts", ())} if is_moe else ()
        ),
        "rules": rules,
        "skips": list(getattr(model, "lora_skip_prefixes", None) or ()),
        "pooling": is_pooling_model(model),
    }


if __name__ == "__main__":
    main()
