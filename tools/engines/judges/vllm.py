"""Judge folders by vLLM's own loader, on a CPU and without its compiled kernels.

`python -P vllm.py` reads folder paths from standard input and prints one JSON line for each. It
runs in the environment that `make engines` sets up: vLLM's wheel without `*.so`, torch for the CPU.

One process imports everything and stays clean. It forks a process for each config, which builds
the model (`EngineArgs(model=FOLDER)` at its defaults, `initialize_model`); that one forks again,
and the last process loads the weights of one folder after another with this config. It is forked
anew when a load changed the model's tensors; so a crash or an endless loop costs one folder.
"""

import contextlib
import gc
import hashlib
import json
import os
import re
import select
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

SECONDS = 60
# Operators of compiled code, which models look up and which no loader calls.
OPERATORS = {
    "_C": """fatrelu_and_mul silu_and_mul situ_and_mul silu_and_mul_with_clamp mul_and_silu
        gelu_and_mul gelu_tanh_and_mul gelu_new gelu_fast gelu_quick relu_squared relu2_no_mul
        swigluoai_and_mul swiglustep_and_mul""",
    "torchvision": """roi_align _roi_align_backward ps_roi_align _ps_roi_align_backward roi_pool
        _roi_pool_backward ps_roi_pool _ps_roi_pool_backward deform_conv2d _deform_conv2d_backward
        nms qnms qroi_align""",
}
LIBRARIES: list[object] = []  # an operator lives as long as its library
IMPORTED = (
    "engine.arg_utils",
    "model_executor.model_loader",
    "model_executor.models.llama",
    "model_executor.models.mixtral",
    "model_executor.models.qwen2_vl",
    "model_executor.models.transformers",
    "model_executor.models.expert_substitution",
    "model_executor.kernels.linear",
    "model_executor.layers.quantization.online.fp8",
    "model_executor.layers.quantization.quark.quark",
)
WORKERS = 2
ALONE = bool(os.environ.get("JUDGE_ALONE"))  # a process for each folder
MORE = b" \n"  # ends an answer of a process that can load another folder
CRASH = {"loads": False, "error": "Timeout or crash", "judged": False, "reads": {}}
# What these messages name is missing on this machine, whatever the checkpoint is.
OF_THE_MACHINE = (
    "_OpNamespace",
    "No module named",
    "cannot import name",
    "is not supported on CPU",
    "not supported on CPU",
    "CpuPlatform",
    "CUDA",
    "cuda",
    "triton",
    "Triton",
    "No NVIDIA",
    "_C.",
    "only supported on GPU",
    "requires a GPU",
    "is not installed",
    "pip install",
    "Please install",
    "failed to be inspected",
    "Failed to find a kernel",
    "not supported for the current platform",
    "is not supported for quantization method",
    "No available memory",
    "No Unquantized MoE backend",
    "MoE backend supports the deployment configuration",
    "compute capability",
    "Supported backends",
    "libcudart",
    "dummy base class",
    "Unknown quantization method",
    "okenizer",
    "rocessor",
    "sparse MLA backend",
    # vLLM asks for an older transformers, whose configs have more keys.
    "Config' object has no attribute",
)


def main() -> None:
    """Answer each line of standard input with a line of JSON."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    prepare()
    if sys.argv[1:] == ["--registered"]:
        print(json.dumps(registered()), file=answers)
        return
    workers: dict[str, Worker] = {}
    for line in sys.stdin:
        folder = line.rstrip("\n")
        if not folder:
            continue
        key = config_key(Path(folder))
        worker = workers.pop(key, None) or Worker()
        workers[key] = worker
        verdict = worker.judge(folder)
        if not worker.alive:
            del workers[key]
        while len(workers) > WORKERS:
            workers.pop(next(iter(workers))).end()
        answers.write(json.dumps({"folder": folder, **verdict}) + "\n")
        answers.flush()
    for worker in workers.values():
        worker.end()


def config_key(folder: Path) -> str:
    """Return a key that folders share if they get the same model.

    What a quantization leaves unpacked is read from the weights, so these folders share nothing.
    """
    try:
        names = sorted(path.name for path in folder.iterdir())
    except OSError:
        return str(folder)
    digest = hashlib.sha256("\n".join(names).encode())
    for name in names:
        if name.endswith(".json") and not name.endswith(".index.json"):
            data = (folder / name).read_bytes()
            if b"quant" in data:
                return str(folder)
            digest.update(data)
    return digest.hexdigest()


def prepare() -> None:
    """Import vLLM with the CPU as its platform."""
    for name, value in {
        "VLLM_TARGET_DEVICE": "cpu",
        "VLLM_CONFIGURE_LOGGING": "0",
        "TORCH_COMPILE_DISABLE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_DO_NOT_TRACK": "1",
        "VLLM_PLUGINS": "",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }.items():
        os.environ[name] = value
    sys.dont_write_bytecode = False
    import torch

    torch.set_num_threads(1)
    for library, names in OPERATORS.items():
        defined = torch.library.Library(library, "DEF")
        for name in names.split():
            defined.define(f"{name}() -> ()")
        LIBRARIES.append(defined)
    import vllm.platforms
    from vllm.platforms.cpu import CpuPlatform

    vllm.platforms._current_platform = CpuPlatform()
    # What most models import is imported here, for all of them.
    for name in IMPORTED:
        import_module(f"vllm.{name}")
    from vllm.model_executor.models import registry

    # The registry looks at a class in a process of its own, to keep CUDA out of this one.
    registry._run_in_subprocess = lambda function: function()
    registry._LazyRegisteredModel._load_modelinfo_from_cache = lambda *_: None
    registry._LazyRegisteredModel._save_modelinfo_to_cache = lambda *_: None


def registered() -> dict[str, object]:
    """Return the architectures that vLLM registers, and those that are tried beside them.

    An architecture that it lacks goes to its Transformers backend if transformers has the class.
    """
    import transformers
    from transformers.models.auto import modeling_auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
    from vllm.model_executor.models.registry import _VLLM_MODELS
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    maps = {
        name: names
        for name, names in vars(modeling_auto).items()
        if name.startswith("MODEL_") and name.endswith("MAPPING_NAMES")
    }
    classes = {
        name
        for names in maps.values()
        for one in names.values()
        for name in ((one,) if isinstance(one, str) else one)
    }
    decoders = maps["MODEL_FOR_CAUSAL_LM_MAPPING_NAMES"]
    wanted = ("FOR_CAUSAL_LM_", "FOR_SEQUENCE_CLASSIFICATION_", "")
    tried = {maps[f"MODEL_{word}MAPPING_NAMES"].get(one) for word in wanted for one in decoders}
    return {
        "engine": "vllm",
        "version": version("vllm"),
        "with": {name: version(name).partition("+")[0] for name in ("torch", "transformers")},
        "keyed_by": "architectures",
        "closed": False,
        "registered": sorted(_VLLM_MODELS),
        "classes": sorted(classes),
        "types": sorted({*CONFIG_MAPPING_NAMES, *_CONFIG_REGISTRY}),
        "tries": sorted(
            {name for name in _VLLM_MODELS if hasattr(transformers, name)}
            | {name for name in tried if isinstance(name, str)}
        ),
    }


class Worker:
    """A process that holds the model of one config, and judges one folder after another."""

    def __init__(self) -> None:
        """Fork it; it builds the model when the first folder arrives."""
        self.link = Path(tempfile.mkdtemp()) / "model"
        requests, self.requests = os.pipe()
        self.replies, replies = os.pipe()
        self.alive = True
        self.process = os.fork()
        if self.process == 0:
            os.setpgid(0, 0)
            os.close(self.requests)
            os.close(self.replies)
            status = 1
            with contextlib.suppress(BaseException):
                serve(os.fdopen(requests), replies, self.link)
                status = 0
            os._exit(status)
        os.close(requests)
        os.close(replies)

    def judge(self, folder: str) -> dict[str, object]:
        """Return the verdict on a folder; end the process if it fails or takes too long."""
        self.link.unlink(missing_ok=True)
        self.link.symlink_to(Path(folder).resolve())
        with contextlib.suppress(BrokenPipeError):
            os.write(self.requests, b"next\n")
        text = read_line(self.replies, SECONDS)
        if text.endswith(b"\n"):
            return json.loads(text)
        self.end()
        return CRASH

    def end(self) -> None:
        """Stop the process and what it started."""
        self.alive = False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        os.close(self.requests)
        os.close(self.replies)
        shutil.rmtree(self.link.parent, ignore_errors=True)


def read_line(descriptor: int, seconds: float) -> bytes:
    """Return what arrives up to a newline, or less if the time is up or the writer is gone."""
    text = b""
    while not text.endswith(b"\n") and select.select([descriptor], [], [], seconds)[0]:
        more = os.read(descriptor, 1 << 16)
        if not more:
            break
        text += more
    return text


def serve(requests: Iterable[str], replies: int, link: Path) -> None:
    """Build the model of the folder behind a link, and answer each request by a loading process."""
    model = failure = None
    loader = own = asked = 0
    for _ in requests:
        if model is None and failure is None:
            try:
                model = build(str(link))
            except BaseException as error:  # noqa: BLE001 - whatever it raises is the answer
                failure = verdict_on(error, "build")
        if failure is not None:
            os.write(replies, (json.dumps(failure) + "\n").encode())
            continue
        if not loader:
            theirs, asked = os.pipe()
            own, others = os.pipe()
            loader = os.fork()
            if loader == 0:
                os.close(asked)
                answer(os.fdopen(theirs), others, model)
                os._exit(0)
            os.close(theirs)
            os.close(others)
        os.write(asked, b"next\n")
        text = read_line(own, SECONDS)
        if not text.endswith(MORE):
            os.close(own)
            os.close(asked)
            with contextlib.suppress(ProcessLookupError):
                os.kill(loader, signal.SIGKILL)
            os.waitpid(loader, 0)
            loader = 0
        if not text.endswith(b"\n"):
            text = json.dumps(CRASH).encode() + b"\n"
        os.write(replies, text.removesuffix(MORE).removesuffix(b"\n") + b"\n")


def answer(requests: Iterable[str], replies: int, model: tuple[object, object]) -> None:
    """Load one folder after another, until a load leaves the model other than it was.

    Loaders compare names and shapes, and write numbers into tensors. While the model's tensors have
    the shapes that they had, what was loaded before cannot show.
    """
    gc.disable()
    before = tensors_of(model[1])
    for _ in requests:
        try:
            found = load(*model)
        except BaseException as error:  # noqa: BLE001 - whatever it raises is the answer
            found = verdict_on(error, "load")
        again = not ALONE and tensors_of(model[1]) == before
        os.write(replies, json.dumps(found).encode() + (MORE if again else b"\n"))


def tensors_of(model: object) -> dict[str, object]:
    """Return the shape and the dtype of each tensor of a model."""
    each = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
    return {name: (tensor.shape, tensor.dtype, tensor.device.type) for name, tensor in each}


def build(folder: str) -> tuple[object, ...]:
    """Return the config and the model that vLLM makes of a folder, without weights."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    config = EngineArgs(model=folder, dtype="bfloat16").create_engine_config()
    with set_current_vllm_config(config):
        store = Path(folder).with_name("world")
        init_distributed_environment(1, 0, f"file://{store}", 0, "gloo")
        initialize_model_parallel(1, 1)
        with set_default_torch_dtype(config.model_config.dtype), torch.device("cpu"):
            model = initialize_model(vllm_config=config, model_config=config.model_config)
    return config, model


def load(config: object, model: object) -> dict[str, object]:
    """Load the weights and return the verdict."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader import get_model_loader

    with set_current_vllm_config(config):
        get_model_loader(config.load_config).load_weights(model, config.model_config)
    return {"loads": True, "error": "", "judged": True, "reads": reads(config, model)}


def verdict_on(error: BaseException, step: str) -> dict[str, object]:
    """Return the verdict for an exception: of the checkpoint, or of this machine."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    text = f"{type(error).__name__}: {str(error) or f'{frame.line} in {frame.name}'}"
    text = re.split(r"\. The available parameters| Supported architectures:", text, maxsplit=1)[0]
    text = re.sub(r"\{('[^{}]*')\}", lambda found: ", ".join(sorted(found[1].split(", "))), text)
    if os.environ.get("JUDGE_TRACE"):
        traceback.print_exception(error)
    of_machine = isinstance(error, ImportError) or any(word in text for word in OF_THE_MACHINE)
    return {
        "loads": False,
        "error": " ".join(text.split())[:400],
        "judged": not of_machine,
        "step": step,
        "reads": {},
    }


def reads(config: object, model: object) -> dict[str, object]:
    """Return what can be seen of the values that the model uses."""
    seen: dict[str, set[object]] = {}
    for _, module in model.named_modules():
        kind = type(module).__name__
        for key, names in {
            "rope_base": ("base",) if "Rotary" in kind else (),
            "rotary_dim": ("rotary_dim",) if "Rotary" in kind else (),
            "eps": ("variance_epsilon", "eps") if "Norm" in kind else (),
            "sliding_window": ("sliding_window",) if kind.endswith("Attention") else (),
            "logit_scale": ("scale",) if kind == "LogitsProcessor" else (),
        }.items():
            for name in names:
                value = getattr(module, name, None)
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    seen.setdefault(key, set()).add(value)
        frequencies = getattr(module, "inv_freq", ())
        if "Rotary" in kind and not hasattr(module, "base") and len(frequencies) > 1:
            # of the Transformers backend: inv_freq[i] = base ** (-i / len(inv_freq))
            base = float(frequencies[1].double()) ** -len(frequencies)
            seen.setdefault("rope_base", set()).add(float(f"{base:.6g}"))
        if hasattr(getattr(module, "impl", None), "scale"):
            seen.setdefault("scale", set()).add(module.impl.scale)
    found = {key: sorted(values) for key, values in seen.items()}
    head = getattr(model, "lm_head", None)
    inner = getattr(model, "model", None)
    table = getattr(inner, "embed_tokens", None)
    if head is not None and table is not None:
        found["tied"] = head is table or getattr(head, "weight", None) is getattr(
            table, "weight", 0
        )
    found["class"] = type(model).__name__
    if found["class"].startswith("Transformers"):
        found["backend"] = "transformers"
    found["runner"] = config.model_config.runner_type
    return found


if __name__ == "__main__":
    main()
