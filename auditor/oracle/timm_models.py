"""Build a model of timm on torch's meta device, and list its tensors, without weights."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from auditor.analytic import Expectation, ExpectedTensor, Role
from auditor.analytic.expectation import summed_expectation
from auditor.analytic.loading import Loading
from auditor.errors import Reason, SourceError, UsageError
from auditor.extras import install
from auditor.messages import quoted
from auditor.oracle.build import building, checked_config
from auditor.oracle.diffusers_models import state_tensors

# Arguments that let timm read files or the network.
_READS = re.compile(r"^(pretrained|checkpoint_path|cache_dir)")

_COUNTER = ".num_batches_tracked"  # of a batch norm; older checkpoints lack it


def build_expectation(config: Mapping[str, Any], target: str) -> Expectation:
    """Return the tensors that timm's `save_for_hf` writes for an architecture and its config.json.

    The keys that timm reads are num_classes, model_args and pretrained_cfg. Raise the errors of
    `inventory`.
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
    return summed_expectation(
        target,
        model_type="timm",
        prefix="",
        tensors=tuple(_tensors(model)),
        loading=Loading(legacy=()),
    )


def _tensors(model: Any) -> Iterator[ExpectedTensor]:
    for tensor in state_tensors(model):
        is_counter = tensor.name.endswith(_COUNTER)
        yield tensor._replace(role=Role.LEGACY) if is_counter else tensor
