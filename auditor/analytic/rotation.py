"""The rotation of queries and keys: whether its frequencies can be worked out from a config.

transformers does it when a model is built, in tensors as long as half a head is wide. What follows
does it in lengths alone, step by step as there: it fails where transformers fails.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct

from auditor.analytic.blocks import Unbuildable
from auditor.analytic.config import Config
from auditor.analytic.config_classes import Settled, library
from auditor.analytic.config_classes.completed import WRONG, error_text
from auditor.analytic.config_classes.rope import KEY, standardize_rope
from auditor.analytic.parts import refused
from auditor.messages import described

_LENGTH = "original_max_position_embeddings"
_ADDRESSED = 2**63  # bytes that a tensor can have, and the integers that one can hold

Parameters = Mapping[str, Any]
Frequencies = Callable[[Settled, Parameters], "Vector"]


class Vector(Struct, frozen=True):
    """A tensor of one axis, of which only the length is known."""

    length: int

    def _with(self, other: object) -> "Vector":
        match other:
            case Vector(length):
                if 1 not in {length, self.length} and length != self.length:
                    raise ValueError(f"{self.length} frequencies do not go with {length}")
                return Vector(length if self.length == 1 else self.length)
            case int() if not -_ADDRESSED <= other < 2 * _ADDRESSED:
                raise OverflowError(f"{other} is more than a tensor can hold")
            case int() | float():
                return self
        raise TypeError(f"{described(other)} is not a number")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _with
    __truediv__ = __rtruediv__ = __rpow__ = _with


def arange(end: Any, step: int = 1) -> Vector:
    """What torch.arange(0, end, step) makes."""
    if not isinstance(end, int | float):
        raise TypeError(f"{described(end)} is not a number")
    if end < 0:
        raise ValueError(f"a width of {end} has no frequencies")
    end = math.ceil(end)
    length = -(-end // step)
    if 8 * length >= _ADDRESSED:
        raise ValueError(f"{length} frequencies are more than a tensor can hold")
    return Vector(length)


def head_width(config: Settled) -> Any:
    return config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]


def plain_frequencies(config: Settled, parameters: Parameters) -> Vector:
    """The usual frequencies, of all of a head."""
    return inverse_frequencies(parameters["rope_theta"], head_width(config))


def partial_frequencies(config: Settled, parameters: Parameters) -> Vector:
    """The usual frequencies, of some of a head."""
    share = parameters.get("partial_rotary_factor", 1.0)
    return inverse_frequencies(parameters["rope_theta"], int(head_width(config) * share))


def inverse_frequencies(base: Any, dim: Any) -> Vector:
    """What 1 / base ** (arange(0, dim, 2) / dim) makes."""
    row: Vector = 1.0 / (base ** (arange(dim, 2) / dim))
    return row


def rotation(
    c: Config, usual: Frequencies = partial_frequencies, *, kinds: Iterable[str] | None = None
) -> Unbuildable | None:
    """Nothing where all frequencies can be worked out; `kinds`: of each kind of layer its own."""
    if c.settled is None:
        return None
    try:
        parameters = c.settled[KEY]
        for kind in (None,) if kinds is None else kinds:
            one = parameters if kind is None else parameters[kind]
            if one is not None:
                work_out(c.settled, one, usual)
    except WRONG as error:
        reason = f"{c.settled.named(KEY)} gives no frequencies: {error_text(error)}"
        return refused(c, reason, KEY)
    return None


def axial_rotation(c: Config, key: str = "hidden_size") -> Unbuildable | None:
    """That of images: half of a head turns by rows, and half by columns.

    `key`: the width that the heads share, where they have none of their own.
    """
    if c.settled is None:
        return None
    try:
        parameters = c.settled[KEY]
        if parameters["rope_type"] != "axial":
            raise ValueError(f"{described(parameters['rope_type'])} is not axial")
        heads = c.settled["num_attention_heads"]
        dim = c.settled.get("head_dim") or c.settled[key] // heads
        inverse_frequencies(parameters["rope_theta"], dim // 2)
    except WRONG as error:
        return refused(c, f"{c.settled.named(KEY)} gives no frequencies: {error_text(error)}", KEY)
    return None


def turning(c: Config, width: int) -> Unbuildable | None:
    """How much of a head turns, which attention works out, too: a share that is a number."""
    parameters = c.attribute(KEY) if c.settled else None
    share = parameters.get("partial_rotary_factor", 1.0) if isinstance(parameters, dict) else 1.0
    try:
        int(width * share)
    except WRONG as error:
        what = f"{c.path}{KEY}.partial_rotary_factor is {described(share)}"
        return refused(c, f"{what}: {error_text(error)}", KEY)
    return None


def kinds_of_layers(c: Config) -> tuple[str, ...]:
    """The kinds of layers that there are, each once."""
    kinds = c.settled.get("layer_types") if c.settled else None
    return tuple(dict.fromkeys(kinds or ()))


def work_out(config: Settled, parameters: Parameters, usual: Frequencies) -> None:
    kind = parameters["rope_type"]
    if kind == "default":
        usual(config, parameters)
    elif kind in library().rope_types:
        standardize_rope(config)
        _SCALED[kind](config, parameters)
    else:
        raise ValueError(f"{described(kind)} is not a type of rotation")


# --- the types that are scaled -----------------------------------------------------------------


def _dim(config: Settled, parameters: Parameters) -> int:
    """Of types that take head_dim as it is, wherever the config class has it."""
    head = config["hidden_size"] // config["num_attention_heads"]
    return int(config.get("head_dim", head) * parameters.get("partial_rotary_factor", 1.0))


def _linear(config: Settled, parameters: Parameters) -> Vector:
    factor = parameters["factor"]
    row: Vector = partial_frequencies(config, parameters) / factor
    return row


def _proportional(config: Settled, parameters: Parameters) -> Vector:
    head = head_width(config)
    turns = int(parameters.get("partial_rotary_factor", 1.0) * head // 2)
    rotated = 1.0 / (parameters["rope_theta"] ** (arange(2 * turns, 2) / head))
    if head // 2 > turns:
        rotated = Vector(rotated.length + head // 2 - turns)
    row: Vector = rotated / parameters.get("factor", 1.0)
    return row


def _dynamic(config: Settled, parameters: Parameters) -> Vector:
    base, dim, factor = parameters["rope_theta"], _dim(config, parameters), parameters["factor"]
    longest = config["max_position_embeddings"]
    stretched = base * ((factor * longest / longest) - (factor - 1)) ** (dim / (dim - 2))
    return inverse_frequencies(stretched, dim)


def _yarn(config: Settled, parameters: Parameters) -> Vector:
    base, dim, factor = parameters["rope_theta"], _dim(config, parameters), parameters["factor"]
    length = parameters[_LENGTH]
    if factor is None:
        factor = config["max_position_embeddings"] / length
    _yarn_attention(parameters, factor)
    fast, slow = parameters.get("beta_fast") or 32, parameters.get("beta_slow") or 1
    frequencies = base ** (arange(dim, 2) / dim)
    interpolated = 1.0 / (factor * frequencies)
    truncate = config[KEY].get("truncate", True)
    low, high = (_correction(turns, dim, base, length) for turns in (fast, slow))
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    ramp = (arange(dim // 2) - max(low, 0)) / (min(high, dim - 1) - max(low, 0))
    row: Vector = interpolated * ramp + frequencies * ramp
    return row


def _yarn_attention(parameters: Parameters, factor: Any) -> None:
    scale, of_all = parameters.get("mscale"), parameters.get("mscale_all_dim")
    if parameters.get("attention_factor") is not None:
        return
    if scale and of_all:
        _ = float(mscale(factor, scale) / mscale(factor, of_all))
    else:
        mscale(factor, 1)


def mscale(factor: Any, scale: Any) -> Any:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _correction(turns: Any, dim: int, base: Any, length: Any) -> float:
    return (dim * math.log(length / (turns * 2 * math.pi))) / (2 * math.log(base))


def _longrope(config: Settled, parameters: Parameters) -> Vector:
    base, dim = parameters["rope_theta"], _dim(config, parameters)
    _ = parameters["long_factor"]
    factor, length = parameters.get("factor"), parameters[_LENGTH]
    if factor is None:
        factor = config["max_position_embeddings"] / length
    if parameters.get("attention_factor") is None and not factor <= 1.0:
        _ = math.sqrt(1 + math.log(factor) / math.log(length))
    factors = parameters["short_factor"]
    if not all(isinstance(each, int | float) for each in factors):
        raise TypeError("short_factor has what is not a number")
    row: Vector = 1.0 / (Vector(len(factors)) * base ** (arange(dim, 2) / dim))
    return row


def _llama3(config: Settled, parameters: Parameters) -> Vector:
    frequencies = partial_frequencies(config, parameters)
    low, high = parameters["low_freq_factor"], parameters["high_freq_factor"]
    length = parameters[_LENGTH]
    _ = length / low, length / high
    smooth = (length / frequencies - low) / (high - low)
    row: Vector = frequencies / parameters["factor"] + smooth
    return row


_SCALED: Mapping[str, Frequencies] = {
    "linear": _linear,
    "proportional": _proportional,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
}
