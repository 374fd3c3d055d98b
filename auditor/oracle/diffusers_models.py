"""Build a model of diffusers on torch's meta device, and list its tensors, without weights."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from auditor.analytic import Expectation, ExpectedTensor, Role
from auditor.analytic.diffusion.autoencoder_kl import OLDER_ATTENTION
from auditor.analytic.expectation import summed_expectation
from auditor.analytic.loading import Loading, Rule
from auditor.errors import Reason, SourceError, UsageError
from auditor.extras import install
from auditor.messages import quoted
from auditor.oracle.build import (
    building,
    checked_config,
    one_line,
    tensor_of,
)


def build_expectation(config: Mapping[str, Any], target: str) -> Expectation:
    """Return the tensors that `save_pretrained` writes for a class and the config of a component.

    Raise the errors of `inventory`.
    """
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
    return summed_expectation(
        target,
        model_type="",
        prefix="",
        tensors=tuple(state_tensors(model)),
        loading=Loading(
            renames=tuple(_renames(model)), legacy=(), silent=tuple(sorted(unexpected))
        ),
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


def state_tensors(model: Any) -> Iterator[ExpectedTensor]:
    """Yield the tensors of a state dict; of those that share memory, later ones are tied."""
    learned = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    first_by_id: dict[int, str] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        first = first_by_id.setdefault(id(value), name)
        if first != name:
            yield tensor_of(name, value, Role.TIED, first)
        else:
            yield tensor_of(name, value, Role.PARAMETER if name in learned else Role.BUFFER)
