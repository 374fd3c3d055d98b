"""Two faults planted at once in checkpoints that transformers writes."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, islice
from pathlib import Path
from random import Random
from typing import NamedTuple

from support.changes import with_names, with_values
from support.fault_bench import without_tensors, written
from support.faults.fault import of_shape, rewritten, tensors_of
from support.faults.names import LAYER

from auditor.checkpoint.snapshot import Snapshot
from auditor.report import Diagnosis

DRAWS = 60
LEVEL = "body."
_OF_NAMES = frozenset({"wrapper-prefix", "moved-names"})
FAMILIES = (
    "LlamaForCausalLM",
    "BertForMaskedLM",
    "Qwen2ForCausalLM",
    "GPT2LMHeadModel",
    "MistralForCausalLM",
    "RobertaForMaskedLM",
    "GPTNeoXForCausalLM",
    "Gemma2ForCausalLM",
    "ViTForImageClassification",
    "Olmo2ForCausalLM",
    "OPTForCausalLM",
    "BartForConditionalGeneration",
)
Plant = Callable[[Snapshot], Snapshot | None]  # None: not in this family


class Pair(NamedTuple):
    """A checkpoint with two faults, and the causes of which one has to be named for each."""

    name: str
    snapshot: Snapshot
    causes: tuple[frozenset[str], ...]

    def is_named(self, diagnoses: Iterable[Diagnosis]) -> bool:
        """Whether each fault has a right cause; one cause may name two changes of names."""
        found = tuple(diagnoses)
        named = all(any(one.cause in right for one in found) for right in self.causes)
        both = [
            text for text in ("module.", "student.net.", "_checkpoint", LEVEL) if text in self.name
        ]
        return named and all(any(text in one.summary for one in found) for text in both)


def _config(snapshot: Snapshot) -> dict:
    return json.loads(snapshot.config.content)


def _behind(prefix: str) -> Plant:
    return lambda snapshot: _renamed(snapshot, lambda name: f"{prefix}{name}")


def _renamed(snapshot: Snapshot, rename: Callable[[str], str]) -> Snapshot | None:
    renames = {one.name: rename(one.name) for one in tensors_of(snapshot)}
    return with_names(snapshot, renames) if any(a != b for a, b in renames.items()) else None


def _level(snapshot: Snapshot) -> Snapshot | None:
    """The lists of layers are one module deeper."""
    return _renamed(
        snapshot, lambda name: re.sub(r"\b(layers?|h|block)\.(?=\d)", rf"{LEVEL}\1.", name)
    )


def _checkpointed(snapshot: Snapshot) -> Snapshot | None:
    return _renamed(snapshot, lambda name: LAYER.sub(r"\1\2._checkpoint_wrapped_module\3", name))


def _from_one(snapshot: Snapshot) -> Snapshot | None:
    def later(name: str) -> str:
        return LAYER.sub(lambda at: f"{at[1]}{int(at[2]) + 1}{at[3]}", name)

    return _renamed(snapshot, later)


def _other(keys: tuple[str, ...], by: int) -> Plant:
    def plant(snapshot: Snapshot) -> Snapshot | None:
        config = _config(snapshot)
        key = next((one for one in keys if type(config.get(one)) is int), None)
        return with_values(snapshot, {key: config[key] + by}) if key else None

    return plant


def _without_layer(snapshot: Snapshot) -> Snapshot | None:
    lost = {
        one.name
        for one in tensors_of(snapshot)
        if (found := LAYER.match(one.name)) and found[2] == "1"
    }
    return without_tensors(snapshot, lost) if lost else None


def _without_head(snapshot: Snapshot) -> Snapshot | None:
    heads = {one.name for one in tensors_of(snapshot)} & {"lm_head.weight", "embed_out.weight"}
    tied = _config(snapshot).get("tie_word_embeddings")
    return without_tensors(snapshot, heads) if heads and not tied else None


def _half_resized(snapshot: Snapshot) -> Snapshot | None:
    wide = ("embed_tokens.weight", "embed_in.weight")
    one = next((one for one in tensors_of(snapshot) if one.name.endswith(wide)), None)
    if one is None or _without_head(snapshot) is None:
        return None
    rows, columns = one.shape
    return rewritten(
        snapshot, lambda it: (of_shape(it, rows + 4, columns) if it.name == one.name else it,)
    )


def _doubled(snapshot: Snapshot) -> Snapshot:
    return with_values(snapshot, {"dtype": "bfloat16"})


def _packed(snapshot: Snapshot) -> Snapshot:
    settings = {"quant_method": "gptq", "bits": 4, "group_size": 32}
    return with_values(snapshot, {"quantization_config": settings})


def _transposed(snapshot: Snapshot) -> Snapshot | None:
    def turned(one):
        turns = LAYER.match(one.name) and len(one.shape) == 2 and one.shape[0] != one.shape[1]
        return (of_shape(one, *one.shape[::-1]) if turns else one,)

    return rewritten(snapshot, turned)


def _adapted(snapshot: Snapshot) -> Snapshot | None:
    def lora(one):
        if not re.search(r"(v_proj|value|c_attn|query_key_value)\.weight$", one.name):
            return (one,)
        path, (rows, columns) = one.name.removesuffix(".weight"), one.shape
        return (
            one._replace(name=f"{path}.base_layer.weight"),
            of_shape(one, 4, columns, name=f"{path}.lora_A.default.weight"),
            of_shape(one, rows, 4, name=f"{path}.lora_B.default.weight"),
        )

    return rewritten(snapshot, lora)


# What is planted -> the causes that are right; a pair is of two that do not touch the same thing.
PLANTS: dict[str, tuple[Plant, frozenset[str]]] = {
    "behind module.": (_behind("module."), _OF_NAMES),
    "behind student.net.": (_behind("student.net."), _OF_NAMES),
    "layers in _checkpoint_wrapped_module": (_checkpointed, _OF_NAMES),
    f"layers below {LEVEL}": (_level, _OF_NAMES),
    "layers from 1": (_from_one, frozenset({"layers-renumbered"})),
    "an adapter": (_adapted, frozenset({"unmerged-adapter"})),
    "a layer lost": (_without_layer, frozenset({"layers-renumbered", "lost-part"})),
    "no head": (_without_head, frozenset({"head-not-saved"})),
    "another vocabulary": (_other(("vocab_size", "num_labels"), 8), frozenset({"config-field"})),
    "other inner size": (
        _other(("intermediate_size", "ffn_dim", "encoder_ffn_dim"), 16),
        frozenset({"config-field"}),
    ),
    "half resized": (_half_resized, frozenset({"half-resized"})),
    "transposed": (_transposed, frozenset({"transposed"})),
    "a wider dtype": (_doubled, frozenset({"dtype-doubled"})),
    "said to be packed": (_packed, frozenset({"quantization-not-applied"})),
}
_TOUCHING = (
    {"behind module.", "behind student.net."},
    {"layers from 1", "a layer lost"},
    {"no head", "half resized"},
    {"another vocabulary", "half resized"},
    {"another vocabulary", "other inner size"},  # one cause names both keys
    {"transposed", "other inner size"},  # neither reading is more likely than the other
)


def pairs(place: Path, seed: int = 0) -> Iterator[Pair]:
    """Sixty pairs of planted faults, drawn from all pairs in all families."""
    apart = (two for two in combinations(PLANTS, 2) if {*two} not in _TOUCHING)
    draws = [(name, *two) for two in apart for name in FAMILIES]
    Random(seed).shuffle(draws)  # noqa: S311 - the same pairs in every run
    found = (_pair(written(name, place), name, one, other) for name, one, other in draws)
    yield from islice(filter(None, found), DRAWS)


def _pair(snapshot: Snapshot, name: str, one: str, other: str) -> Pair | None:
    spoilt = _planted(snapshot, one, other)
    causes = PLANTS[one][1], PLANTS[other][1]
    return spoilt and Pair(f"{name}, {one} and {other}", spoilt, causes)


def _planted(snapshot: Snapshot, *faults: str) -> Snapshot | None:
    """Plant one fault after the other; what changes names comes last."""
    for fault in reversed(faults):
        changed = PLANTS[fault][0](snapshot)
        if changed is None or _is_same(changed, snapshot):
            return None
        snapshot = changed
    return snapshot


def _is_same(one: Snapshot, other: Snapshot) -> bool:
    return one.config == other.config and tensors_of(one) == tensors_of(other)
