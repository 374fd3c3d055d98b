"""Methods that store a few tensors beside each layer: LoHa, VeRA, FourierFT, norms, chosen words.

Their shapes are those of peft's classes, and held to them by a test.
"""

from collections.abc import Iterator

from auditor.analytic.adapters.base import AdaptedModel, AdaptedModule, Size
from auditor.analytic.adapters.saved_modules import BELOW, BESIDE, expected_tensor
from auditor.analytic.adapters.settings import AdapterSettings, unchecked_adapter
from auditor.analytic.adapters.targets import Ranks, Targets
from auditor.analytic.blocks import Layer
from auditor.analytic.expectation import ExpectedTensor, Role
from auditor.errors import CheckpointError
from auditor.messages import quoted


def loha(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """LoHa, https://arxiv.org/abs/2108.06098: the product, number by number, of two thin pairs."""
    ranks = Ranks(settings, base.paths, settings.rank())
    for part, size in _linear(settings, base):
        rank = ranks.of(part.path)
        for pair in ("hada_w1", "hada_w2"):
            yield expected_tensor(f"{BELOW}{part.path}.{pair}_a", size.outputs, rank)
            yield expected_tensor(f"{BELOW}{part.path}.{pair}_b", rank, size.inputs)


def vera(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """VeRA, https://arxiv.org/abs/2310.11454: two vectors a layer, and one random pair for all.

    The pair is as large as the largest layer, is not learned, and need not be stored.
    """
    rank, found = settings.rank(), tuple(_linear(settings, base))
    for part, size in found:
        yield expected_tensor(f"{BELOW}{part.path}.vera_lambda_b", size.outputs)
        yield expected_tensor(f"{BELOW}{part.path}.vera_lambda_d", rank)
    if settings.config.flag("save_projection"):
        inputs = max(size.inputs for _, size in found)
        outputs = max(size.outputs for _, size in found)
        yield expected_tensor(f"{BESIDE}vera_A", rank, inputs, role=Role.BUFFER)
        yield expected_tensor(f"{BESIDE}vera_B", outputs, rank, role=Role.BUFFER)


def fourier_ft(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """FourierFT, https://arxiv.org/abs/2405.03003: some coefficients of a layer's spectrum."""
    if settings.states("n_frequency_pattern"):
        raise unchecked_adapter("n_frequency_pattern, which gives each layer its own number")
    count = settings.count("n_frequency")
    for part, _ in _linear(settings, base):
        yield expected_tensor(f"{BELOW}{part.path}.fourierft_spectrum", count)


def ln_tuning(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """LN tuning, https://arxiv.org/abs/2312.11420: the chosen modules, which are norms, whole."""
    for part in Targets(settings, base).parts:
        for last, found in part.tensors.items():
            yield expected_tensor(f"{BELOW}{part.path}.ln_tuning_layers.{last}", *found.shape)


def trainable_tokens(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """Trainable tokens: rows of a table of words, and nothing else."""
    count = len(settings.config.integers("token_indices"))
    if not count:
        raise CheckpointError("token_indices is an empty list: no word would be trained")
    for part in Targets(settings, base).parts:
        size = part.size()
        if size is None:
            raise unchecked_adapter(
                f"target_modules chooses {quoted(part.path)}, which has no words"
            )
        width = size.outputs if part.layer is Layer.EMBEDDING else size.inputs
        yield expected_tensor(f"{BELOW}{part.path}.trainable_tokens_delta", count, width)
        for tied in _tied_to(part, base):  # whose rows peft stores once more
            name = f"{BELOW}{tied.path}.trainable_tokens_delta"
            yield expected_tensor(name, count, width, role=Role.EXTRA)


def _tied_to(part: AdaptedModule, base: AdaptedModel) -> Iterator[AdaptedModule]:
    source = part.tensors["weight"].name
    return (
        other
        for other in base.parts.values()
        if "weight" in other.tensors and other.tensors["weight"].tied_to == source
    )


def _linear(settings: AdapterSettings, base: AdaptedModel) -> Iterator[tuple[AdaptedModule, Size]]:
    for part in Targets(settings, base).parts:
        size = part.size()
        if size is None or not part.is_linear:
            raise unchecked_adapter(
                f"target_modules chooses {quoted(part.path)}, which is not linear"
            )
        yield part, size
