"""What a terminal shows first for a typical fault of each cause, up to the table of modules."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from support.fault_bench import faults, written
from support.faults.files import CONFIG, WEIGHTS, file_faults
from support.faults.names import name_faults
from support.spoiled_folders import edit

from auditor.audit.options import Options
from auditor.audit.pipeline import audit, examine
from auditor.formats import View, terminal
from auditor.options import AuditRequest
from auditor.report import Report, Unaudited

FAMILIES = ("LlamaForCausalLM", "MixtralForCausalLM")
MODEL = "my-model"
UP = "model.layers.3.mlp.up_proj.weight"


def first_screens(place: Path) -> str:
    """The screens of the first fault of each cause, each behind the name of its fault."""
    screens: dict[str, str] = {}
    for family in FAMILIES:
        sound = written(family, place)
        planted = (*faults(family, sound), *name_faults(family, sound), *file_faults(family, place))
        for fault in planted:
            if fault.cause not in screens:
                report = examine(fault.snapshot, Options(requested=family))
                screens[fault.cause] = _screen(fault.cause, fault.name, report)
    for cause, label, folder in _spoilt(place / FAMILIES[0]):
        outcome = audit(AuditRequest(model=str(folder), values=True))
        screens[cause] = _screen(cause, label, outcome)
    return "\n".join(screens[cause] for cause in sorted(screens))


def _screen(cause: str, label: str, outcome: Report | Unaudited) -> str:
    named = replace(outcome, requested=MODEL, model=None)
    top = terminal.render(named, View()).partition("\nmodule ")[0]
    return f"# {cause}: {label}\n{top}"


def _spoilt(sound: Path) -> Iterator[tuple[str, str, Path]]:
    """Yield (cause or kind, what is wrong, folder) for faults of numbers and of other files.

    All numbers are scaled first, so that they are not those of the initializer.
    """
    _tensors(lambda tensors: [one.mul_(1.5) for one in tensors.values()])(sound)
    for (cause, label), spoil in SPOILS.items():
        folder = Path(shutil.copytree(sound, sound.parent / "spoilt" / cause))
        spoil(folder)
        yield cause, label, folder


def _tensors(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        from safetensors.torch import load_file, save_file  # noqa: PLC0415 - imports torch

        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})

    return spoil


def _file(name: str, content: object) -> Callable[[Path], None]:
    text = content if isinstance(content, str) else json.dumps(content)
    return lambda folder: (folder / name).write_text(text, "utf-8") and None


def _config(**values: object) -> Callable[[Path], None]:
    return lambda folder: edit(folder / CONFIG, lambda config: config.update(values))


def _packed(tensors: dict[str, Any]) -> None:
    """GPTQ of 4 bits in groups of 16: eight inputs in each int32."""
    import torch  # noqa: PLC0415 - takes seconds

    for name in [name for name in tensors if name.endswith("_proj.weight")]:
        out, inputs = tensors.pop(name).shape
        module = name.removesuffix(".weight")
        tensors[f"{module}.qweight"] = torch.randint(9**9, (inputs // 8, out), dtype=torch.int32)
        tensors[f"{module}.qzeros"] = torch.randint(
            9**9, (inputs // 16, out // 8), dtype=torch.int32
        )
        tensors[f"{module}.scales"] = 1 + torch.rand(inputs // 16, out).half()
        tensors[f"{module}.g_idx"] = torch.arange(inputs, dtype=torch.int32) // 16


class _Calls:
    """An object whose pickle calls a function."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return eval, ("1",)


def _unsafe(folder: Path) -> None:
    import torch  # noqa: PLC0415 - takes seconds
    from safetensors.torch import load_file  # noqa: PLC0415 - imports torch

    torch.save({**load_file(folder / WEIGHTS), "x": _Calls()}, folder / "pytorch_model.bin")
    (folder / WEIGHTS).unlink()


def _adapter(folder: Path) -> None:
    import torch  # noqa: PLC0415 - takes seconds
    from safetensors.torch import save_file  # noqa: PLC0415 - imports torch

    for path in folder.iterdir():
        path.unlink()
    module = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {f"{module}.lora_A.weight": torch.ones(8, 32)}
    save_file(tensors, folder / "adapter_model.safetensors")
    base = {"peft_type": "LORA", "r": 8, "lora_alpha": 8, "target_modules": ["q_proj"]}
    _file("adapter_config.json", {**base, "base_model_name_or_path": "./gone"})(folder)


_VOCABULARY = {f"t{at}": at for at in range(99)}
SPOILS: Mapping[tuple[str, str], Callable[[Path], None]] = {
    ("not-finite", "NaN in a row"): _tensors(lambda all_: all_[UP][0].fill_(float("nan"))),
    ("all-zero", "a matrix of zeros"): _tensors(lambda all_: all_[UP].zero_()),
    ("unexpected", "a tensor too many"): _tensors(
        lambda all_: all_.update({f"{UP}s": all_[UP][0].clone()})
    ),
    ("wrong-dtype", "a tensor of float16"): _tensors(
        lambda all_: all_.update({UP: all_[UP].half()})
    ),
    ("quantization-undeclared", "GPTQ without its config"): _tensors(_packed),
    ("unsafe", "a pickle that calls eval"): _unsafe,
    ("not-found", "an adapter without its base"): _adapter,
    ("bad-header", "a web page in place of the file"): _file(WEIGHTS, "<!doctype html><html>"),
    ("bad-config", "a config that is cut off"): _file(CONFIG, '{"architectures": ["Llama'),
    ("unknown-architecture", "a misspelt type"): _config(
        model_type="lamma", architectures=["LammaModel"]
    ),
    ("code-not-there", "code that was not uploaded"): _config(
        auto_map={"AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    ),
    ("token-beyond-embedding", "a tokenizer with more ids than rows"): _file(
        "tokenizer.json", {"model": {"type": "WordLevel", "vocab": _VOCABULARY}}
    ),
    ("eos-disagrees", "two end tokens"): _file("generation_config.json", {"eos_token_id": 7}),
    ("chat-template-broken", "a template that does not parse"): _file(
        "tokenizer_config.json", {"chat_template": "{% for m in messages %}{{ m.content }"}
    ),
}
