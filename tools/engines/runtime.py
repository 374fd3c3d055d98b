"""Learn from llama.cpp's own loader which keys and tensors each architecture of GGUF needs.

A file grows by the loader's errors, which name the missing key or tensor and the expected shape,
until it loads. Then each key gets other values and each tensor that llama.cpp has a name for is
added: what changes is recorded, as expressions of keys that fit all files that were tried.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from engines.gguf_files import Shape, Typed, write
from engines.judging import Judge

Setting = dict[str, Any]  # values by key, without the architecture's name
Layout = dict[str, Shape]

VOCABULARY, TOKEN_TYPES = "vocabulary", "token_types"
_OWN = {VOCABULARY: "{}.vocab_size", TOKEN_TYPES: "tokenizer.ggml.token_type_count"}
_BLOCKS = "block_count"
_LAYERS = 4
# Keys with words or lists that no shape depends on.
_WORDS = re.compile(r"classifier\.|rope\.scaling\.type|hidden_activation|tensor_data_layout|_ids_")
VALUES: Setting = {
    VOCABULARY: 48,
    TOKEN_TYPES: 3,
    "context_length": 128,
    "embedding_length": 192,
    "feed_forward_length": 160,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    _BLOCKS: _LAYERS,
    "attention.layer_norm_rms_epsilon": 1e-5,
    "attention.layer_norm_epsilon": 1e-5,
}
_EXPERTS: Setting = {
    "expert_count": 6,
    "expert_used_count": 2,
    "expert_feed_forward_length": 32,
    "expert_shared_count": 1,
    "expert_shared_feed_forward_length": 80,
}
_STATES: Setting = {
    "ssm.inner_size": 384,
    "ssm.state_size": 16,
    "ssm.conv_kernel": 4,
    "ssm.time_step_rank": 8,
    "ssm.group_count": 2,
}
_LATENT: Setting = {
    "attention.key_length_mla": 28,
    "attention.value_length_mla": 20,
    "attention.kv_lora_rank": 22,
    "attention.q_lora_rank": 26,
    "attention.key_length": 30,
    "attention.value_length": 22,
    "rope.dimension_count": 8,
}
_MORE: Setting = {
    "rope.dimension_sections": [4, 4, 4, 4],
    "wkv.head_size": 16,
    "kda.gate_lower_bound": -1.0,
    "kda.head_dim": 16,
    "leading_dense_block_count": 1,
    "interleave_moe_layer_step": 1,
    "time_mix_extra_dim": 10,
    "time_decay_extra_dim": 14,
    "attention.decay_lora_rank": 10,
    "attention.iclr_lora_rank": 14,
    "attention.value_residual_mix_lora_rank": 18,
    "attention.gate_lora_rank": 22,
    "attention.sliding_window": 32,
    "attention.relative_buckets_count": 10,
    "shortconv.l_cache": 5,
    "embedding_length_per_layer_input": 12,
    "full_attention_interval": 2,
    "num_loops": 1,
    "expert_group_count": 1,
    "expert_group_used_count": 1,
    "decoder_block_count": 3,
}
PRESETS = tuple(
    {
        **(_EXPERTS if number & 1 else {}),
        **(_STATES if number & 2 else {}),
        **(_LATENT if number & 4 else {}),
    }
    for number in (0, 1, 2, 4, 3, 5, 6, 7)
)
_SUFFIXES = (".weight", ".bias", "", ".scale", ".input_scale")
_ROUNDS = 900
_LONGEST = 63  # bytes of a name
_NUMBERED = re.compile(r"^(.*?)\.(\d+)\.(.*)$")
Words = Callable[[int, int], bool]
# The blocks that have a set of tensors: i is a block's number, k the value of a key.
PREDICATES: Mapping[str, Words] = {
    "below": lambda i, k: i < k,
    "from": lambda i, k: i >= k,
    "every": lambda i, k: k > 0 and (i + 1) % k == 0,
    "but every": lambda i, k: k > 0 and (i + 1) % k != 0,
    "multiple": lambda i, k: k > 0 and i % k == 0,
    "no multiple": lambda i, k: k > 0 and i % k != 0,
    "on": lambda _, k: k != 0,
    "off": lambda _, k: k == 0,
}


class Grown(NamedTuple):
    """A file that loads, or the error at which it stopped growing."""

    setting: Setting
    layout: Layout
    error: str = ""


class Learner:
    """What one architecture needs."""

    def __init__(self, judge: Judge, path: Path, arch: str, names: Mapping[str, Any]) -> None:
        self._judge, self._path, self._arch, self._names = judge, path, arch, names
        self.types: dict[str, str] = {}
        self.asked = 0

    def full(self, key: str) -> str:
        return _OWN.get(key, f"{{}}.{key}").format(self._arch)

    def load(
        self, setting: Setting, layout: Layout, *, run: bool = False, types: Mapping[str, str] = {}
    ) -> str:
        """Return the error of a file; "" if it loads."""
        metadata = {"general.architecture": Typed("str", self._arch)}
        metadata["tokenizer.ggml.model"] = Typed("str", "none")
        for key, value in setting.items():
            metadata[self.full(key)] = self._typed(key, value)
        write(self._path, metadata, layout, types)
        self.asked += 1
        answer = self._judge.outcomes([Path(f"{'run ' if run else ''}{self._path}")])[0]
        return "" if answer["loads"] else answer["error"] or "no message"

    def _typed(self, key: str, value: Any) -> Typed:
        first = value[0] if isinstance(value, list) else value
        by_value = {bool: "bool", int: "u32", float: "f32", str: "str"}[type(first)]
        known = self.types.get(key, by_value)
        if by_value == "str" or known in {"arr", "str"}:
            known = by_value
        return Typed(known, value)

    def grow(self, setting: Setting, layout: Layout) -> Grown:
        """Return a file that loads, with the keys and tensors that the loader's errors name."""
        setting, layout = dict(setting), dict(layout)
        error = ""
        for _ in range(_ROUNDS):
            error = self.load(setting, layout)
            if not error or not self._mend(error, setting, layout):
                break
        return Grown(setting, layout, error)

    def _mend(  # noqa: PLR0911 - one for each error
        self, error: str, setting: Setting, layout: Layout
    ) -> bool:
        start = f"{self._arch}."
        if found := re.search(r"key not found in model: (\S+)", error):
            key = found[1].removeprefix(start)
            if key in setting:
                return False
            value = {**VALUES, **_EXPERTS, **_STATES, **_LATENT, **_MORE}.get(key, "x")
            if "array key" in error and not isinstance(value, list):
                flags = key.endswith(("pattern", "types", "layers"))
                value = [True, False] * 2 if flags else [value if value != "x" else 1] * _LAYERS
            setting[key] = value
            return True
        if found := re.search(r"key (\S+) has wrong type (\S+) but expected type (\S+)", error):
            key = found[1].removeprefix(start)
            if found[3] == "arr" and not isinstance(setting.get(key), list):
                setting[key] = [1] * _LAYERS
                return True
            if self.types.get(key) == found[3]:
                return False
            self.types[key] = found[3]
            if found[2] == "str":
                setting[key] = {"f32": 0.5, "bool": False}.get(found[3], 2)
            return True
        if found := re.search(r"tensor '(\S+)' not found", error):
            is_new = found[1] not in layout
            layout[found[1]] = (1,)
            return is_new
        if found := re.search(r"tensor '(\S+)' has wrong shape; expected ([\d, -]+), got", error):
            layout[found[1]] = tuple(map(int, found[2].split(",")))[::-1]
            return min(layout[found[1]]) > 0
        return False

    def reads(self, grown: Grown) -> dict[str, str]:
        """Return the keys that the loader reads in a file, with the type that it requires.

        A key with a word as its value is refused by its type if the loader reads it.
        """
        words = {key: "x" for key in self._names["keys"] if key[0].isalpha()}
        words = {k: v for k, v in words.items() if not _WORDS.search(k) and k != "vocab_size"}
        read: dict[str, str] = {}
        types = self.types
        for _ in range(_ROUNDS):
            self.types = {key: one for key, one in types.items() if key not in words}
            error = self.load({**grown.setting, **words}, grown.layout)
            found = re.search(r"key (\S+) has wrong type str but expected type (\S+)", error)
            key = found[1].removeprefix(f"{self._arch}.") if found else ""
            if not found or key not in words:
                break
            read[key] = found[2]
            del words[key]
        self.types = types
        return read

    @staticmethod
    def expected_shape(error: str, name: str) -> Shape | None:
        """Return the shape that an error of a tensor's shape names."""
        found = re.search(r"tensor '(\S+)' has wrong shape; expected ([\d, -]+), got", error)
        if not found or found[1] != name:
            return None
        return tuple(map(int, found[2].split(",")))[::-1]

    def optional(
        self, grown: Grown, numbers: Iterable[tuple[str, int]], patterns: Iterable[str]
    ) -> Layout:
        """Return tensors that the loader reads if they are stored, in one block of each list."""
        odd = (7, 3)  # no tensor has this shape
        places = [pattern for pattern in patterns if pattern.count("%") <= 1]
        layout = dict(grown.layout)
        for pattern, suffix in itertools.product(places, _SUFFIXES):
            for list_, number in numbers:
                start = f"{list_}.%d." if list_ else ""
                is_here = pattern.startswith(start) if list_ else "%" not in pattern
                name = pattern.replace("%d", str(number)) + suffix
                if is_here and name not in layout and len(name) < _LONGEST:
                    layout[name] = odd
        found: Layout = {}
        for _ in range(_ROUNDS):
            error = self.load(grown.setting, layout)
            match = re.search(r"tensor '(\S+)' has wrong shape; expected ([\d, -]+), got", error)
            if not match or match[1] in found:
                break
            shape = tuple(map(int, match[2].split(",")))[::-1]
            if min(shape) <= 0:
                del layout[match[1]]
                continue
            found[match[1]] = layout[match[1]] = shape
        return {name: shape for name, shape in found.items() if name not in grown.layout}


def kind_of(name: str) -> tuple[str, int, str]:
    """Return the list, the number and the name below it; ("", -1, name) outside of all lists."""
    found = _NUMBERED.match(name)
    return (found[1], int(found[2]), found[3]) if found else ("", -1, name)


def without_ones(shape: Shape) -> Shape:
    """Return a shape without the leading ones, which llama.cpp does not see."""
    at = next((at for at, length in enumerate(shape) if length != 1), len(shape) - 1)
    return shape[at:]
