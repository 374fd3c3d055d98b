"""Ask vLLM's own code which scheme it picks for the linear layers of a declared quantization.

`python -P vllm_schemes.py` reads a JSON list of questions, each with `model_type` and `declared`,
and prints a JSON list of answers. It runs in the environment of `vllm.py`, which imports vLLM.

Which scheme vLLM picks depends on the platform. It is asked with its platform of a CPU, and with
the one of a GPU for each compute capability; no GPU is needed for that. What compiled code would
have to answer is left out.
"""

import json
import os
import runpy
import sys
import types
from pathlib import Path
from typing import Any

CPU = 0
CAPABILITIES = (70, 75, 80, 89, 90, 100, 120)  # those of the GPUs that vLLM distinguishes
SIZE = 4096
LAYER = "model.layers.0.mlp.down_proj"
COMPILED = ("_C", "_OpNamespace", "dummy base class", "kernel", "Please install", "No module named")


class Read(dict[str, Any]):
    """A declaration that notes which of its keys are read."""

    keys_read: set[str] = set()  # noqa: RUF012 - of all declarations, because vLLM copies them

    def __getitem__(self, key: str) -> Any:
        self.keys_read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value and note its key."""
        self.keys_read.add(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        """Return whether a key is declared, and note it."""
        self.keys_read.add(str(key))
        return super().__contains__(key)


def main() -> None:
    """Answer the questions of standard input on every platform."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    runpy.run_path(str(Path(__file__).with_name("vllm.py")))["prepare"]()
    questions = json.load(sys.stdin)
    found: list[dict[str, Any]] = [{"keys": [], "by": {}} for _ in questions]
    for capability in (CPU, *CAPABILITIES):
        for answer, (keys, outcome) in zip(found, asked(questions, capability), strict=True):
            answer["keys"] = sorted({*answer["keys"], *keys})
            answer["by"][capability] = outcome
    json.dump(found, answers)
    answers.flush()


def asked(questions: list[dict[str, Any]], capability: int) -> list[Any]:
    """Return the answers on one platform, found in a process of their own."""
    own, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(own)
        with os.fdopen(theirs, "w") as stream:
            if capability != CPU:
                pretend(capability)
            json.dump([scheme(one["model_type"], one["declared"]) for one in questions], stream)
        os._exit(0)
    os.close(theirs)
    with os.fdopen(own) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return json.loads(text)


def pretend(capability: int) -> None:
    """Set vLLM's platform of a GPU with a compute capability."""
    sys.modules["vllm._C_stable_libtorch"] = types.ModuleType("vllm._C_stable_libtorch")
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    class Gpu(CudaPlatformBase):
        @classmethod
        def get_device_capability(cls, device_id: int = 0) -> DeviceCapability:  # noqa: ARG003
            return DeviceCapability(*divmod(capability, 10))

    vllm.platforms._current_platform = Gpu()
    for module in list(sys.modules.values()):
        if isinstance(vars(module).get("current_platform"), CpuPlatform):
            module.current_platform = vllm.platforms._current_platform


def scheme(model_type: str, declared: dict[str, Any]) -> tuple[list[str], dict[str, str]]:
    """Return the keys that vLLM reads of a declaration, and the scheme, or why it raises."""
    Read.keys_read = set()
    try:
        outcome = {"scheme": picked(model_type, Read(declared))}
    except Exception as error:  # noqa: BLE001 - whatever it raises is the answer
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"
        of_machine = isinstance(error, AttributeError) or any(word in text for word in COMPILED)
        outcome = {} if of_machine else {"raises": text[:160]}
    return sorted(Read.keys_read), outcome


def picked(model_type: str, declared: Read) -> str:
    """Return the method and the class that vLLM's own code picks for a linear layer."""
    import torch
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.config.model import ModelConfig
    from vllm.model_executor.layers.linear import LinearBase, UnquantizedLinearMethod
    from vllm.model_executor.layers.quantization import get_quantization_config
    from vllm.platforms import current_platform

    model: Any = types.SimpleNamespace(
        quantization=None,
        quantization_config=None,
        allow_deprecated_quantization=False,
        dtype=torch.bfloat16,
        is_moe=False,
        hf_config=types.SimpleNamespace(model_type=model_type),
        model_arch_config=types.SimpleNamespace(quantization_config=declared),
    )
    ModelConfig._verify_quantization(model)
    config = get_quantization_config(model.quantization).from_config(declared)
    config.packed_modules_mapping = {}
    capability = current_platform.get_device_capability()
    if capability is not None and capability.to_int() < config.get_min_capability():
        raise ValueError(f"minimum capability: {config.get_min_capability()}")
    layer = LinearBase.__new__(LinearBase)
    torch.nn.Module.__init__(layer)
    layer.input_size = layer.input_size_per_partition = SIZE
    layer.output_size = layer.output_size_per_partition = SIZE
    layer.params_dtype = torch.bfloat16
    settings = VllmConfig()
    object.__setattr__(settings, "model_config", model)
    with set_current_vllm_config(settings):
        method = config.get_quant_method(layer, LAYER)
    chosen = getattr(layer, "scheme", None) or method
    if isinstance(chosen, UnquantizedLinearMethod):  # its experts alone are packed
        return model.quantization
    return f"{model.quantization}: {type(chosen).__name__}"


if __name__ == "__main__":
    main()
