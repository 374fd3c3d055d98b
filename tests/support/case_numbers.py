"""Numbers for the tensors of a case: as training leaves them, or spoiled by a fault.

`fill` writes them into a file whose data are zeros. A pattern of names is given a word of MAKERS,
which may have an argument: `{"lm_head": "copy model.embed_tokens"}`.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from zlib import crc32

import numpy as np

from auditor.containers.safetensors import LENGTH_BYTES, parse_header

Array = np.ndarray
Arrays = dict[str, Array]


def drawn(rng: np.random.Generator, *shape: int) -> Array:
    """Return numbers as an initializer leaves them."""
    return (0.02 * rng.standard_normal(shape)).astype(np.float32)


def trained(rng: np.random.Generator, *shape: int) -> Array:
    """Return draws with a change of low rank; nearly ones for a vector."""
    if len(shape) < 2:
        return (1 + 0.1 * rng.standard_normal(shape)).astype(np.float32)
    change = rng.standard_normal((shape[0], 2)) @ rng.standard_normal((2, int(np.prod(shape[1:]))))
    return (drawn(rng, *shape) + 0.01 * change.reshape(shape)).astype(np.float32)


def upper_half(numbers: Array) -> Array:
    """Return the numbers rounded to bfloat16, still in four bytes."""
    return (numbers.view(np.uint32) & 0xFFFF0000).view(np.float32)


def _set(numbers: Array, at: object, value: float) -> Array:
    changed = numbers.copy()
    changed[at] = value
    return changed


def _some(rng: np.random.Generator, numbers: Array, share: float, value: float) -> Array:
    return _set(numbers, rng.random(numbers.shape) < share, value)


def _mean_rows(rng: np.random.Generator, numbers: Array, scale: float) -> Array:
    """Give the last four rows the mean of the others, with the noise of transformers."""
    noise = scale * rng.standard_normal((4, numbers.shape[1]))
    return np.concatenate([numbers[:-4], numbers[:-4].mean(0) + noise]).astype(np.float32)


def _dead_channels(rng: np.random.Generator, numbers: Array, scale: float) -> Array:
    rows = rng.permutation(len(numbers))[: len(numbers) * 7 // 16]
    return _set(numbers, rows, numbers[rows] * scale)


def _decayed(numbers: Array) -> Array:
    """Decay every second row, down to subnormal numbers."""
    decays = 2.0 ** -np.linspace(0, 160, len(numbers[::2]))
    return _set(numbers, slice(None, None, 2), numbers[::2] * decays[:, None])


def _dying_in_bf16(rng: np.random.Generator, numbers: Array) -> Array:
    """Return numbers whose BF16 bytes, read as F16, have an ordinary spread and a large number."""
    dying = numbers * 2.0 ** -rng.uniform(0, 60, (len(numbers), 1))
    dying[: len(numbers) // 4] = numbers[: len(numbers) // 4]
    dying[0, 0] = 2
    return dying.astype(np.float32)


MAKERS: Mapping[str, Callable[[np.random.Generator, Array], Array]] = {
    "zero": lambda _, one: 0 * one,
    "one": lambda _, one: 0 * one + 1,
    "constant": lambda _, one: 0 * one + 0.5,
    "drawn": lambda rng, one: drawn(rng, *one.shape) if one.ndim > 1 else 0 * one + 1,
    "nan": lambda _, one: _set(one, (..., 0), np.nan),
    "inf": lambda _, one: _set(one, (..., 0), np.inf),
    "equal rows": lambda _, one: np.tile(one[3], (len(one), 1)),
    "upper half zero": lambda _, one: _set(one, slice(len(one) // 2), 0),
    "right half zero": lambda _, one: _set(one, (..., slice(one.shape[1] // 2, None)), 0),
    "scattered zero rows": lambda rng, one: _dead_channels(rng, one, 0),
    "dead channels": lambda rng, one: _dead_channels(rng, one, 1e-38),
    "decayed rows": lambda _, one: _decayed(one),
    "dying in BF16": _dying_in_bf16,
    "subnormal": lambda rng, one: _some(rng, one, 0.3, 1e-40),
    "outlier": lambda _, one: _set(one, (0, 0), 1e30),
    "mean rows": lambda rng, one: _mean_rows(rng, one, 0),
    "noisy mean rows": lambda rng, one: _mean_rows(rng, one, 1e-6),
    "rounded": lambda _, one: upper_half(one),
    "a third rounded": lambda rng, one: np.where(
        rng.random(one.shape) < 1 / 3, upper_half(one), one
    ),
    "a twentieth rounded": lambda rng, one: np.where(
        rng.random(one.shape) < 0.05, upper_half(one), one
    ),
    "through F16": lambda _, one: one.astype(np.float16).astype(np.float32),
    "tuned": lambda rng, one: one + drawn(rng, *one.shape) / 4,
    "more": lambda _, one: one + 1,
    "rank 1": lambda rng, one: one + _of_rank(rng, one.shape, 1),
    "rank 2": lambda rng, one: one + _of_rank(rng, one.shape, 2),
    "rank 17": lambda rng, one: one + _of_rank(rng, one.shape, 17),
    "three rows": lambda _, one: (
        one + np.eye(*one.shape, dtype=np.float32) * (np.arange(one.shape[1]) < 3)
    ),
}


def _of_rank(rng: np.random.Generator, shape: tuple[int, ...], rank: int) -> Array:
    factors = rng.standard_normal((shape[0], rank)), rng.standard_normal((rank, shape[1]))
    return (factors[0] @ factors[1] / 100).astype(np.float32)


def made(shapes: Mapping[str, tuple[int, ...]], numbers: Mapping[str, str]) -> Arrays:
    """Return trained numbers, changed by the makers of the patterns in turn."""
    rngs = {name: np.random.default_rng(crc32(name.encode())) for name in shapes}
    arrays = {name: trained(rngs[name], *shape) for name, shape in shapes.items()}
    for pattern, word in numbers.items():
        maker, _, source = word.partition(" of ")
        for name in [name for name in arrays if re.search(pattern, name)]:
            if maker == "copy":  # "copy of layers.0" in a name with layers.2
                arrays[name] = arrays[re.sub(pattern, source, name)]
            else:
                arrays[name] = MAKERS[word](rngs[name], arrays[name]).astype(np.float32)
    return arrays


def fill(path: Path, numbers: Mapping[str, str], bytes_as: Mapping[str, str] | None = None) -> None:
    """Write the numbers into a safetensors file, in each tensor's dtype.

    `bytes_as` writes the bytes of another dtype for the tensors of a dtype.
    """
    content = bytearray(path.read_bytes())
    header = parse_header(path.name, bytes(content))
    start = LENGTH_BYTES + header.header_length
    arrays = made({one.name: one.shape or () for one in header.tensors}, numbers)
    for one in header.tensors:
        dtype, span = one.dtype or "", one.span
        if span is not None:
            raw = _encoded(arrays[one.name], (bytes_as or {}).get(dtype, dtype))
            content[start + span.start : start + span.stop] = raw
    path.write_bytes(content)


def _encoded(numbers: Array, dtype: str) -> bytes:
    if dtype == "BF16":
        return (numbers.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    with np.errstate(over="ignore"):
        return numbers.astype({"F32": np.float32, "F16": np.float16}[dtype]).tobytes()
