"""Adapter methods with few tensors: LoHa, VeRA, FourierFT, IA3, norms, tokens, prompts.

A test compares their shapes with those of peft's classes.
"""

from collections.abc import Iterator

from auditor.analytic.adapters.base import AdaptedModel, AdaptedModule, Size
from auditor.analytic.adapters.saved_modules import (
    IN_BASE,
    OUTSIDE_BASE,
    expected_tensor,
    require_rows,
)
from auditor.analytic.adapters.settings import (
    AdapterSettings,
    ModuleNames,
    paths_matching,
    unchecked_adapter,
)
from auditor.analytic.adapters.targets import Ranks, Targets
from auditor.analytic.blocks import Layer
from auditor.analytic.expectation import ExpectedTensor, Role
from auditor.errors import CheckpointError
from auditor.messages import quoted


def loha(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """Yield the tensors of LoHa, https://arxiv.org/abs/2108.06098: two pairs per layer."""
    ranks = Ranks(settings, base.paths, settings.rank())
    for part, size in linear_parts(settings, base):
        rank = ranks.of(part.path)
        for pair in ("hada_w1", "hada_w2"):
            yield expected_tensor(f"{IN_BASE}{part.path}.{pair}_a", size.outputs, rank)
            yield expected_tensor(f"{IN_BASE}{part.path}.{pair}_b", rank, size.inputs)


def vera(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """Yield VeRA's tensors, https://arxiv.org/abs/2310.11454: two vectors per layer, one pair.

    All layers share the pair of random matrices, which fits the largest layer, is not learned, and
    need not be stored.
    """
    rank, parts = settings.rank(), tuple(linear_parts(settings, base))
    for part, size in parts:
        yield expected_tensor(f"{IN_BASE}{part.path}.vera_lambda_b", size.outputs)
        yield expected_tensor(f"{IN_BASE}{part.path}.vera_lambda_d", rank)
    if settings.config.flag("save_projection"):
        inputs = max(size.inputs for _, size in parts)
        outputs = max(size.outputs for _, size in parts)
        yield expected_tensor(f"{OUTSIDE_BASE}vera_A", rank, inputs, role=Role.BUFFER)
        yield expected_tensor(f"{OUTSIDE_BASE}vera_B", outputs, rank, role=Role.BUFFER)


def fourier_ft(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """Yield FourierFT's tensors, https://arxiv.org/abs/2405.03003: spectral coefficients."""
    if settings.states("n_frequency_pattern"):
        raise unchecked_adapter("n_frequency_pattern, which gives each layer its own number")
    count = settings.count("n_frequency")
    for part, _ in linear_parts(settings, base):
        yield expected_tensor(f"{IN_BASE}{part.path}.fourierft_spectrum", count)


def ln_tuning(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """Yield LN tuning's tensors, https://arxiv.org/abs/2312.11420: copies of chosen norms."""
    for part in Targets(settings, base).parts:
        for last, tensor in part.tensors.items():
            yield expected_tensor(f"{IN_BASE}{part.path}.ln_tuning_layers.{last}", *tensor.shape)


def trainable_tokens(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """Yield the tensors of trainable tokens: some rows of an embedding."""
    rows = tuple(settings.config.integers("token_indices"))
    count = len(rows)
    if not rows:
        raise CheckpointError("token_indices is an empty list: no word would be trained")
    for part in Targets(settings, base).parts:
        size = part.size()
        if size is None:
            raise unchecked_adapter(
                f"target_modules chooses {quoted(part.path)}, which has no words"
            )
        require_rows("token_indices", rows, part)
        width = size.outputs if part.layer is Layer.EMBEDDING else size.inputs
        yield expected_tensor(f"{IN_BASE}{part.path}.trainable_tokens_delta", count, width)
        for tied in base.tied_to(part):  # peft may store the rows again
            name = f"{IN_BASE}{tied.path}.trainable_tokens_delta"
            yield expected_tensor(name, count, width, role=Role.EXTRA)


def linear_parts(
    settings: AdapterSettings, base: AdaptedModel
) -> Iterator[tuple[AdaptedModule, Size]]:
    """Yield the linear layers that target_modules chooses, with their sizes."""
    for part in Targets(settings, base).parts:
        size = part.size()
        if size is None or not part.is_linear:
            raise unchecked_adapter(
                f"target_modules chooses {quoted(part.path)}, which is not linear"
            )
        yield part, size


# --- learned prompts ------------------------------------------------------------------------------

# The encoder of a prompt (an MLP, an LSTM, a projection) is not saved; its outputs are.
_EMBEDDINGS = "prompt_embeddings"
_TOWERS = "SEQ_2_SEQ_LM"  # models for this task have an encoder and a decoder, with a prompt each


def prompt_tuning(settings: AdapterSettings) -> Iterator[ExpectedTensor]:
    """Yield the embeddings of the virtual tokens: (tokens * submodules, token_dim)."""
    yield expected_tensor(_EMBEDDINGS, _tokens(settings), settings.count("token_dim"))


def prefix_tuning(settings: AdapterSettings) -> Iterator[ExpectedTensor]:
    """Yield one tensor, all layers' keys and values: (tokens, num_layers * 2 * token_dim)."""
    width = settings.count("num_layers") * 2 * settings.count("token_dim")
    yield expected_tensor(_EMBEDDINGS, settings.count("num_virtual_tokens"), width)


def multitask_prompt_tuning(settings: AdapterSettings) -> Iterator[ExpectedTensor]:
    """Yield the prompt of all tasks, and each task's low-rank matrix that multiplies it."""
    tokens, width = _tokens(settings), settings.count("token_dim")
    tasks, rank = settings.count("num_tasks"), settings.count("num_ranks")
    yield expected_tensor("prefix_task_cols", tasks, tokens, rank)
    yield expected_tensor("prefix_task_rows", tasks, rank, width)
    yield expected_tensor(_EMBEDDINGS, tokens, width)


def _tokens(settings: AdapterSettings) -> int:
    """Return the number of virtual tokens, summed over an encoder and a decoder."""
    towers = 2 if settings.task == _TOWERS else 1
    if settings.config.present("num_transformer_submodules"):
        towers = settings.count("num_transformer_submodules")
    return settings.count("num_virtual_tokens") * towers


def ia3(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """Yield IA3's tensors, https://arxiv.org/abs/2205.05638: vectors that scale features.

    `ia3_l` scales the inputs of a feed-forward module, (1, in), and the outputs of other modules,
    (out, 1).
    """
    forward = _feed_forward(settings, base)
    for part in Targets(settings, base).parts:
        size = part.size()
        if size is None or part.layer is Layer.EMBEDDING:
            raise unchecked_adapter(f"target_modules chooses {quoted(part.path)}: no linear layer")
        name, inward = f"{IN_BASE}{part.path}.ia3_l", part.path in forward
        width = size.inputs if inward else size.outputs
        if size.kernel:
            yield expected_tensor(name, 1, width, *(1 for _ in size.kernel))
        else:
            yield expected_tensor(name, *((1, width) if inward else (width, 1)))


def _feed_forward(settings: AdapterSettings, base: AdaptedModel) -> frozenset[str]:
    names = settings.names("feedforward_modules") or ModuleNames(ends=frozenset())
    if names.ends is not None:
        # Unlike target_modules, these entries may match the end of a name without a dot before it.
        ends = tuple(names.ends)
        return frozenset(path for path in base.paths if ends and path.endswith(ends))
    if names.expression is None:
        raise unchecked_adapter("feedforward_modules is all-linear, which names no modules")
    return paths_matching("feedforward_modules", names.expression, base.paths)
