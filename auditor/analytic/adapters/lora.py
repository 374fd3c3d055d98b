"""LoRA, https://arxiv.org/abs/2106.09685, also with DoRA's magnitudes; and AdaLoRA.

For a weight of (out, in), `lora_A` is (r, in) and `lora_B` (out, r): r * (in + out) parameters.
rsLoRA and methods that only initialize differently (PiSSA, OLoRA, EVA) store the same tensors.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import NamedTuple

from auditor.analytic.adapters.base import AdaptedModel, AdaptedModule, Size, name_ends_in
from auditor.analytic.adapters.saved_modules import IN_BASE, expected_tensor
from auditor.analytic.adapters.settings import AdapterSettings, unchecked_adapter
from auditor.analytic.adapters.targets import Ranks, Targets
from auditor.analytic.blocks import Layer
from auditor.analytic.expectation import ExpectedTensor, Role
from auditor.errors import CheckpointError
from auditor.messages import described, quoted

# Settings that change the tensors in ways that are not implemented here.
_OTHER_TENSORS = (
    "enable_lora",  # peft 0.2: the parts of a joined layer that have an adapter
    "layer_replication",
    "use_qalora",
    "use_bdlora",
    "arrow_config",
    "kasa_config",
    "monteclora_config",
    "velora_config",
    "ensure_weight_tying",
)
# Model types whose fused experts are (E, in, out); all others have (E, out, in).
_TRANSPOSED = frozenset({"aria_text", "gpt_oss", "llama4", "llama4_text"})
_MOST_TERMS = 8  # most terms of a formula: models have few different layers


class LowRankPair(NamedTuple):
    """The sizes of a pair of low-rank matrices, for the formula: `r*(in + out)`."""

    rank: int
    inputs: int
    outputs: int


class Lora(NamedTuple):
    """The tensors that LoRA adds to a base, and the modules that it adapts."""

    tensors: tuple[ExpectedTensor, ...]
    pairs: tuple[LowRankPair, ...]
    targeted: frozenset[str]


def lora(settings: AdapterSettings, base: AdaptedModel) -> Lora:
    """Return LoRA's tensors and modules; raise CheckpointError if no module is chosen."""
    for key in _OTHER_TENSORS:
        if settings.states(key):
            raise unchecked_adapter(
                f"{key} changes the tensors of an adapter in a way not known here"
            )
    targets = Targets(settings, base)
    parameters = tuple(_parameters(settings, base))
    ranks = Ranks(settings, (*base.paths, *(each.name for each in parameters)), settings.rank())
    dora, bias = settings.config.flag("use_dora"), settings.config.flag("lora_bias")
    tensors: list[ExpectedTensor] = []
    pairs: list[LowRankPair] = []
    for part in targets.parts:
        rank = ranks.of(part.path)
        tensors.extend(_tensors_of_part(part, rank, dora=dora, bias=bias))
        pairs.append(_pair(part, rank))
    for parameter in parameters:
        pair = _pair_of_parameter(base, parameter, ranks.of(parameter.name))
        tensors.append(expected_tensor(f"{parameter.stored}.lora_A.weight", pair.rank, pair.inputs))
        tensors.append(
            expected_tensor(f"{parameter.stored}.lora_B.weight", pair.outputs, pair.rank)
        )
        pairs.append(pair)
    if not pairs:
        raise CheckpointError("neither target_modules nor target_parameters names anything")
    return Lora(tuple(tensors), tuple(pairs), frozenset(targets.chosen))


def lora_formula(pairs: Iterable[LowRankPair], rank: int) -> str | None:
    """Return a formula, `12*r*(768 + 2304) + 12*r*(3072 + 768)`; None if empty or too long."""
    kinds = Counter(pairs)
    if not 0 < len(kinds) <= _MOST_TERMS:
        return None
    return " + ".join(
        f"{f'{count}*' if count > 1 else ''}{'r' if pair.rank == rank else pair.rank}"
        f"*({pair.inputs} + {pair.outputs})"
        for pair, count in kinds.items()
    )


def _size(part: AdaptedModule) -> Size:
    if (size := part.size()) is None:
        raise unchecked_adapter(
            f"target_modules chooses {quoted(part.path)}, of a kind that is not known"
        )
    return size


def _pair(part: AdaptedModule, rank: int) -> LowRankPair:
    size = _size(part)
    return LowRankPair(rank, size.inputs * prod(size.kernel), size.outputs)


def _tensors_of_part(
    part: AdaptedModule, rank: int, *, dora: bool, bias: bool
) -> Iterator[ExpectedTensor]:
    size = _size(part)
    name = f"{IN_BASE}{part.path}"
    ones = (1,) * len(size.kernel)
    if part.layer is Layer.EMBEDDING:
        yield expected_tensor(f"{name}.lora_embedding_A", rank, size.inputs)
        yield expected_tensor(f"{name}.lora_embedding_B", size.outputs, rank)
    else:
        yield expected_tensor(f"{name}.lora_A.weight", rank, size.inputs, *size.kernel)
        yield expected_tensor(f"{name}.lora_B.weight", size.outputs, rank, *ones)
        if bias:
            yield expected_tensor(f"{name}.lora_B.bias", size.outputs)
    if dora:
        shape = (1, size.outputs, *ones) if ones else (size.outputs,)
        yield expected_tensor(f"{name}.lora_magnitude_vector", *shape)


class _Parameter(NamedTuple):
    name: str  # its name in the base: "model.layers.0.mlp.experts.down_proj"
    stored: str  # the stored name without the adapter's own part
    shape: tuple[int, ...]


def _parameters(settings: AdapterSettings, base: AdaptedModel) -> Iterator[_Parameter]:
    """Yield the parameters that target_parameters chooses: tensors such as fused experts.

    If a module has several such parameters, their wrappers are nested, the last one outermost.
    """
    if not settings.config.present("target_parameters"):
        return
    ends = frozenset(settings.config.texts("target_parameters"))
    has_match = False
    for path, part in base.parts.items():
        chosen = [last for last in part.tensors if name_ends_in(f"{path}.{last}", ends)]
        for depth, last in enumerate(reversed(chosen)):
            has_match = True
            stored = f"{IN_BASE}{path}{'.base_layer' * depth}"
            yield _Parameter(f"{path}.{last}", stored, part.tensors[last].shape)
    if ends and not has_match:
        shown = quoted(", ".join(sorted(ends)[:3]))
        target = base.expectation.target
        raise CheckpointError(f"target_parameters, {shown}, matches no parameter of {target}")


def _pair_of_parameter(base: AdaptedModel, parameter: _Parameter, rank: int) -> LowRankPair:
    match parameter.shape:
        case (outputs, inputs):
            return LowRankPair(rank, inputs, outputs)
        case (count, first, second):
            transposed = base.expectation.model_type in _TRANSPOSED
            inputs, outputs = (first, second) if transposed else (second, first)
            return LowRankPair(rank * count, inputs, outputs)
    raise unchecked_adapter(
        f"target_parameters chooses {quoted(parameter.name)}: it is not a matrix"
    )


# --- AdaLoRA ----------------------------------------------------------------------------------


def adalora(settings: AdapterSettings, base: AdaptedModel) -> Lora:
    """Return AdaLoRA's tensors, https://arxiv.org/abs/2303.10512: A, B and E, the singular values.

    Training reduces the initial rank: rank_pattern has true for each dimension that remains.
    """
    targets = Targets(settings, base)
    first = settings.rank("init_r")
    remaining = dict(_remaining_ranks(settings.table("rank_pattern")))
    tensors: list[ExpectedTensor] = []
    pairs: list[LowRankPair] = []
    for part in targets.parts:
        rank = remaining.get(part.path, first)
        pair, name = _pair(part, rank), f"{IN_BASE}{part.path}"
        if not part.is_linear:
            raise unchecked_adapter(
                f"target_modules chooses {quoted(part.path)}, which is not linear"
            )
        tensors.append(expected_tensor(f"{name}.lora_A", rank, pair.inputs))
        tensors.append(expected_tensor(f"{name}.lora_B", pair.outputs, rank))
        tensors.append(expected_tensor(f"{name}.lora_E", rank, 1))
        tensors.append(expected_tensor(f"{name}.ranknum", role=Role.LEGACY))
        pairs.append(pair)
    return Lora(tuple(tensors), tuple(pairs), frozenset(targets.chosen))


def _remaining_ranks(pattern: Mapping[str, object]) -> Iterator[tuple[str, int]]:
    """Yield a module's path and rank for each `PATH.lora_E`: [true, false, ...]."""
    for key, marks in pattern.items():
        if not isinstance(marks, list) or any(type(mark) is not bool for mark in marks):
            where = f"rank_pattern of {quoted(key)}"
            observed = described(marks)
            raise CheckpointError(f"{where} is {observed}, expected a list of true and false")
        path = key.removeprefix(IN_BASE)
        path = path.removesuffix(".default").removesuffix(".lora_E")
        yield path, sum(marks)
