"""The inventory of a class of transformers, diffusers or timm: one function for all libraries.

A model is built on torch's meta device, and its tensors are listed, without weights.
"""

import json
import re
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from auditor.analytic import Expectation, ExpectedTensor, Role
from auditor.analytic.diffusion.autoencoder_kl import OLDER_ATTENTION
from auditor.analytic.expectation import summed_expectation
from auditor.analytic.loading import Loading, Rule
from auditor.errors import Reason, SourceError, UsageError
from auditor.extras import install
from auditor.messages import quoted
from auditor.oracle import build
from auditor.oracle.build import building, checked_config, one_line, tensor_of

# Arguments that let timm read files or the network.
_READS = re.compile(r"^(pretrained|checkpoint_path|cache_dir)")

_COUNTER = ".num_batches_tracked"  # of a batch norm; older checkpoints lack it


def inventory(library: str, target: str, config: Mapping[str, Any]) -> Expectation:
    """Return the tensors that the library writes for a model of this class and config.

    A class of timm is an architecture. Raise UsageError if the library is not installed,
    SourceError for a class that it does not have or cannot build here, and CheckpointError for a
    config from which the class cannot be built.
    """
    builders = {"diffusers": _of_diffusers, "timm": _of_timm}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return builders.get(library, build.build_expectation)(config, target)


def _of_diffusers(config: Mapping[str, Any], target: str) -> Expectation:
    """Return the tensors that `save_pretrained` writes for a class and a component's config."""
    try:
        import diffusers  # noqa: PLC0415 - seconds, and only in the oracle's process
        import torch  # noqa: PLC0415 - likewise
    except ImportError as error:
        raise UsageError(
            f"the oracle needs torch and diffusers ({error}): {install('diffusers')}"
        ) from None
    diffusers.utils.logging.set_verbosity_error()
    try:
        model_class: Any = getattr(diffusers, target, None)
    except Exception as error:  # noqa: BLE001 - the import of its file may fail in any way
        detail = f"{target} needs what is not here: {one_line(error)}"
        raise SourceError(Reason.UNKNOWN_ARCHITECTURE, detail) from None
    is_model = isinstance(model_class, type) and issubclass(model_class, diffusers.ModelMixin)
    if not is_model or model_class is diffusers.ModelMixin:
        raise SourceError(
            Reason.UNKNOWN_ARCHITECTURE,
            f"diffusers {diffusers.__version__} has no model class {quoted(target)}",
        )
    with building("diffusers", target), torch.device("meta"):
        model = model_class.from_config(checked_config(config))
    unexpected = model._keys_to_ignore_on_load_unexpected or ()  # noqa: SLF001 - as loading does
    renames, silent = tuple(_renames(model)), tuple(sorted(unexpected))
    return summed_expectation(
        target,
        model_type="",
        prefix="",
        tensors=tuple(_state_tensors(model)),
        loading=Loading(renames=renames, legacy=(), silent=silent),
    )


def _renames(model: Any) -> Iterator[Rule]:
    """Yield the renames that loading applies in blocks that older versions wrote, as in VAEs."""
    blocks = [
        re.escape(path)
        for path, module in model.named_modules()
        if getattr(module, "_from_deprecated_attn_block", False)
    ]
    for older, name in OLDER_ATTENTION.items() if blocks else ():
        yield Rule((rf"^({'|'.join(blocks)})\.{older}\.",), (rf"\1.{name}.",))


def _state_tensors(model: Any) -> Iterator[ExpectedTensor]:
    """Yield the tensors of a state dict; of those that share memory, later ones are tied."""
    learned = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    first_by_id: dict[int, str] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        first = first_by_id.setdefault(id(value), name)
        if first != name:
            yield tensor_of(name, value, Role.TIED, first)
        else:
            yield tensor_of(name, value, Role.PARAMETER if name in learned else Role.BUFFER)


def _of_timm(config: Mapping[str, Any], target: str) -> Expectation:
    """Return the tensors that timm's `save_for_hf` writes for an architecture and its config.json.

    The keys that timm reads are num_classes, model_args and pretrained_cfg.
    """
    try:
        import timm  # noqa: PLC0415 - seconds, and only in the oracle's process
        import torch  # noqa: PLC0415 - likewise
    except ImportError as error:
        raise UsageError(f"the oracle needs torch and timm ({error}): {install('timm')}") from None
    if not timm.is_model(target):
        raise SourceError(
            Reason.UNKNOWN_ARCHITECTURE,
            f"timm {timm.__version__} has no architecture {quoted(target)}",
        )
    checked = checked_config(config) | {"architecture": target}
    with building("timm", target), TemporaryDirectory() as folder, torch.device("meta"):
        if arguments := checked.get("model_args"):
            kept = {key: value for key, value in arguments.items() if not _READS.search(key)}
            checked["model_args"] = kept
        (Path(folder) / "config.json").write_text(json.dumps(checked), encoding="utf-8")
        model = timm.create_model(f"local-dir:{folder}", pretrained=False)
    tensors = (
        tensor._replace(role=Role.LEGACY) if tensor.name.endswith(_COUNTER) else tensor
        for tensor in _state_tensors(model)
    )
    return summed_expectation(
        target,
        model_type="timm",
        prefix="",
        tensors=tuple(tensors),
        loading=Loading(legacy=()),
    )
