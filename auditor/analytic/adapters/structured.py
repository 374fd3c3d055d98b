"""Adapter methods whose matrices are structured: BOFT, OFT, LoKr, HRA, RandLoRA and MiSS.

A test compares their shapes with those of peft's classes.
"""

from collections.abc import Iterator
from math import isqrt

from auditor.analytic.adapters.base import AdaptedModel
from auditor.analytic.adapters.other_methods import linear_parts
from auditor.analytic.adapters.saved_modules import IN_BASE, OUTSIDE_BASE, expected_tensor
from auditor.analytic.adapters.settings import AdapterSettings, unchecked_adapter
from auditor.analytic.adapters.targets import Ranks
from auditor.analytic.blocks import Layer
from auditor.analytic.expectation import ExpectedTensor, Role
from auditor.errors import CheckpointError

_WIDEST = 2**24  # the longest axis of which divisors are looked for


def boft(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """Yield BOFT's tensors, https://arxiv.org/abs/2311.06243: rotated blocks and a scale.

    `boft_R` is (1, blocks, size, size) with blocks * size = in, `boft_s` is (out, 1).
    """
    if _number(settings, "boft_n_butterfly_factor", 1) != 1:
        raise unchecked_adapter(
            "boft_n_butterfly_factor, which peft reads if it compiled CUDA code"
        )
    size, count = _number(settings, "boft_block_size", 4), _number(settings, "boft_block_num", 0)
    for path, inputs, outputs in _linear(settings, base):
        blocks, length = _blocks(inputs, count, size)
        yield expected_tensor(f"{IN_BASE}{path}.boft_R", 1, blocks, length, length)
        yield expected_tensor(f"{IN_BASE}{path}.boft_s", outputs, 1)


def oft(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """Yield OFT's tensors, https://arxiv.org/abs/2306.07280: skew-symmetric blocks.

    `oft_R.weight` has a row for each of in / size blocks, with size * (size - 1) / 2 numbers.
    """
    size, count = _number(settings, "oft_block_size", 32), _number(settings, "r", 0)
    for path, inputs, _ in _linear(settings, base):
        blocks, length = _blocks(inputs, count, size)
        rows = 1 if settings.states("block_share") else blocks
        yield expected_tensor(f"{IN_BASE}{path}.oft_R.weight", rows, length * (length - 1) // 2)


def lokr(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """Yield LoKr's tensors, https://arxiv.org/abs/2309.14859: a Kronecker product.

    The weight (out, in) is w1 (a, c) times w2 (b, d), with out = a * b and in = c * d; w2 is of
    rank r if r is smaller than half its longer axis, and so is w1 if `decompose_both` is true.
    """
    ranks = Ranks(settings, base.paths, settings.rank())
    factor = _number(settings, "decompose_factor", -1)
    for path, inputs, outputs in _linear(settings, base):
        rank, name = ranks.of(path), f"{IN_BASE}{path}.lokr"
        first, second = zip(_factors(outputs, factor), _factors(inputs, factor), strict=True)
        is_split = {"w1": settings.states("decompose_both"), "w2": True}
        for part, shape in {"w1": first, "w2": second}.items():
            if is_split[part] and 2 * rank < max(shape):
                yield expected_tensor(f"{name}_{part}_a", shape[0], rank)
                yield expected_tensor(f"{name}_{part}_b", rank, shape[1])
            else:
                yield expected_tensor(f"{name}_{part}", *shape)


def hra(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """Yield HRA's tensors, https://arxiv.org/abs/2405.17484: r reflections of the inputs."""
    for path, inputs, _ in _linear(settings, base):
        yield expected_tensor(f"{IN_BASE}{path}.hra_u", inputs, settings.rank())


def randlora(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """Yield RandLoRA's tensors, https://arxiv.org/abs/2502.00987: weights of random bases.

    A layer has ceil(min(in, out) / r) bases. All layers share the bases, which fit the largest
    layer, are not learned, and need not be stored; some files repeat them for each layer.
    """
    rank, parts = _number(settings, "r", 32), tuple(_linear(settings, base))
    if rank < 1:
        raise CheckpointError(f"r is {rank}, expected at least 1")
    axes = (max(inputs for _, inputs, _ in parts), max(outputs for _, _, outputs in parts))
    shared = {
        "randlora_A": (rank, 1, min(axes)),
        "randlora_B": (max(axes), -(-min(axes) // rank), rank),
    }
    is_stored = settings.config.flag("save_projection")
    for path, inputs, outputs in parts:
        name, least = f"{IN_BASE}{path}.", min(inputs, outputs)
        bases = -(-least // rank)
        yield expected_tensor(f"{name}randlora_lambda", rank, bases)
        yield expected_tensor(f"{name}randlora_gamma", bases, least)
        for key, shape in shared.items() if is_stored else ():
            yield expected_tensor(f"{name}{key}", *shape, role=Role.LEGACY)
    for key, shape in shared.items() if is_stored else ():
        yield expected_tensor(f"{OUTSIDE_BASE}{key}", *shape, role=Role.BUFFER)


def miss(settings: AdapterSettings, base: AdaptedModel) -> Iterator[ExpectedTensor]:
    """Yield MiSS's tensors, https://arxiv.org/abs/2409.15371: one block for each layer.

    `miss_block` is (r, out); (out / r, r, r) in the variant "bat"; (r, mini_r) in "mini".
    """
    rank, variant = _number(settings, "r", 64), settings.config.values.get("init_weights")
    if rank < 1:
        raise CheckpointError(f"r is {rank}, expected at least 1")
    for path, _, outputs in _linear(settings, base):
        shape: tuple[int, ...] = (rank, outputs)
        if variant == "bat":
            shape = (outputs // rank, rank, rank)
        elif variant == "mini":
            shape = (rank, _number(settings, "mini_r", 1))
        yield expected_tensor(f"{IN_BASE}{path}.miss_block", *shape)


def _linear(settings: AdapterSettings, base: AdaptedModel) -> Iterator[tuple[str, int, int]]:
    """Yield (path, inputs, outputs) of the chosen linear layers."""
    for part, size in linear_parts(settings, base):
        if part.layer is Layer.CONV1D and settings.method != "RANDLORA":
            raise unchecked_adapter(f"{settings.method} on a Conv1D, which peft refuses")
        yield part.path, size.inputs, size.outputs


def _blocks(inputs: int, count: int, size: int) -> tuple[int, int]:
    """Return number and length of the blocks into which inputs are divided; one of both is 0."""
    if (count > 0) == (size > 0):
        raise CheckpointError(f"{count} blocks of {size}: expected one of both to be 0")
    given = count or size
    if inputs % given:
        raise unchecked_adapter(f"{inputs} inputs, which {given} does not divide")
    return (given, inputs // given) if count else (inputs // given, given)


def _factors(length: int, factor: int) -> tuple[int, int]:
    """Return two factors of a length: the given one, else near it, or near the square root."""
    if factor > 0 and length % factor == 0:
        return factor, length // factor
    if length > _WIDEST:
        raise unchecked_adapter(f"a layer of {length:,} inputs or outputs")
    most = isqrt(length) if factor < 0 else min(factor, isqrt(length))
    first = next((one for one in range(most, 0, -1) if length % one == 0), 1)
    return first, length // first


def _number(settings: AdapterSettings, key: str, default: int) -> int:
    """Return a whole number of the settings; the default of the method if it is absent."""
    return settings.config.integer(key) if key in settings.config.values else default
