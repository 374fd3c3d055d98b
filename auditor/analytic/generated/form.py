"""A generated form: data from which the tensors of one class follow, and the configs it covers."""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct

from auditor.analytic.generated.expressions import Outside, evaluator, keys_of
from auditor.bounded.json_text import is_identical

# Keys of every config class that shape no tensor; the learner varies none of them.
_IGNORED = """
_attn_implementation _attn_implementation_autoset _attn_implementation_internal _class_name
_commit_hash _diffusers_version _name_or_path architectures attn_implementation auto_map
bos_token_id chunk_size_feed_forward decoder_start_token_id do_sample dtype early_stopping
eos_token_id finetuning_task forced_bos_token_id forced_eos_token_id gradient_checkpointing
label2id length_penalty max_length min_length no_repeat_ngram_size num_beams
model_max_length output_attentions output_hidden_states output_past padding_idx prefix problem_type
quantization_config use_bfloat16 xla_device
repetition_penalty return_dict sep_token_id task_specific_params temperature tokenizer_class
top_k top_p torch_dtype torchscript transformers_version use_cache
"""
IGNORED = frozenset(_IGNORED.split())
_OF_ANY = ("model_type", "id2label", "num_labels")  # keys of every config class
_MOST_ITEMS = 200_000  # of a list by layer
_DEEPEST = 4  # levels of nested configs


class Row(Struct, frozen=True, array_like=True):
    """The tensors whose names fit one template; each `*` in it is the index of a loop."""

    template: str
    levels: tuple[tuple[Any, Any], ...]  # per loop: its bound, and a test of each index
    present: Any  # a test of the keys: the row has tensors
    shape: tuple[Any, ...]
    roles: tuple[tuple[tuple[str, str | None], Any], ...]  # role, tied_to, and its test
    seen: Mapping[str, tuple[Any, ...]] = {}  # the values of keys under which it was seen
    layer: str | None = None  # the layer of a weight whose shape does not show it: blocks.Layer


class Form(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tensors of one class as rows, with the config keys and values that the form covers."""

    target: str
    model_type: str
    library: str  # "transformers 5.24.0"
    prefix: str
    held: int  # the number of random configs over which the form was exact
    defaults: Mapping[str, Any]  # of each key that acts or is guarded; nested keys have dots
    free: tuple[str, ...] = ()  # keys that do not act
    hidden: tuple[str, ...] | None = None  # the keys that its source reads; None: any may act
    parts: Mapping[str, Mapping[str, Any]] = {}  # nested configs: what a given one changes
    part_types: Mapping[str, str] = {}  # the model types of nested configs
    untyped: tuple[str, ...] = ()  # nested configs that need not state their model type
    aliases: Mapping[str, str] = {}
    derived: tuple[tuple[str, Any, Any], ...] = ()  # key, a list's length, the value or an item
    guards: Mapping[str, tuple[Any, ...]] = {}
    filled: Mapping[str, Any] = {}  # keys that may be null: what the class takes instead
    implied: tuple[str, ...] = ()  # keys that the class derives: guarded only if written
    kinds: Mapping[str, tuple[str, ...]] = {}  # the types of values that were varied
    lengths: Mapping[str, int] = {}
    items: Mapping[str, tuple[Any, ...]] = {}  # what lists of strings may have
    split: tuple[str, ...] = ()  # lists that a config may state as "one|other"
    base_key: str = ""  # the key of a composite config under which the class's own config is
    rows: tuple[Row, ...] = ()
    memory_rows: tuple[Row, ...] = ()  # its tensors in memory, if loading rules do not give them
    loadings: tuple[tuple[Any, Any], ...] = ()  # loading rules, and the test of when they apply

    @property
    def source(self) -> str:
        """The library that the form equals, and on how many configs it was compared."""
        return f"{self.library}, compared on {self.held} configs"

    def has(self, key: str) -> bool:
        """Return whether the form knows what a key of the outermost config does."""
        own = self.aliases.get(key, key)
        return own in self.defaults or own in self.parts or key in (self.base_key, *_OF_ANY)

    def read(self, config: Mapping[str, Any]) -> tuple[dict[str, Any], Collection[str]]:
        """Return the values of the form's keys, and which of the keys the config states.

        Values are completed as by the library's config class. Raise Outside for a key or a value
        that the form does not cover.
        """
        own = config.get(self.base_key) if self.base_key else None
        config = own if isinstance(own, Mapping) else config
        if config.get("model_type") not in (self.model_type, None):
            raise Outside("model_type", self.model_type)
        values, written = dict(self.defaults), dict[str, Any]()
        for key, value in self._flat(config, "", _DEEPEST):
            if key in self.parts:
                values.update(self.parts[key])
            elif key not in self.defaults:
                if self._may_act(key, config):
                    raise Outside(key)
            elif written.setdefault(key, value) != value:
                raise Outside(key)
        values.update(written)
        for key, instead in self.filled.items():
            if key in written and values[key] is None:
                values[key] = evaluator(instead)(values, ())
        self._derive(values, written)
        self._require_covered(values, written)
        return values, written.keys()

    def _derive(self, values: dict[str, Any], written: Mapping[str, Any]) -> None:
        """Set the keys that the config class derives from others and the config does not state."""
        for key, length, element in self.derived:
            if (stated := written.get(key)) is not None:
                if isinstance(stated, list | tuple) and any(keys_of(length)):
                    count = evaluator(length)(values, ())
                    if len(stated) != count:  # a list by layer that differs from the depth
                        raise Outside(key, f"{count} items")
                continue
            if length is None and element is None:
                raise Outside(key)
            values[key] = derived(key, values, length, element)

    def _flat(  # noqa: C901 - one branch for each kind of key
        self, config: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[tuple[str, Any]]:
        for name, value in config.items():
            key = path + name
            if name == "id2label" and config.get("num_labels") is not None:
                continue  # the number is what counts
            if name in ("id2label", "num_labels") and value is not None:
                if name == "id2label" and not isinstance(value, Mapping):
                    raise Outside(key)
                if path + "num_labels" in self.defaults:
                    yield path + "num_labels", value if name == "num_labels" else len(value)
                elif path + "num_labels" not in self.free:
                    raise Outside(key)
                continue
            key = self.aliases.get(key, key)
            if key in self.parts:
                if value is None:
                    continue
                if not isinstance(value, Mapping) or not depth:
                    raise Outside(key)
                # save_pretrained writes "" for a class without a type
                stated = value.get("model_type") or None
                if stated != self.part_types.get(key) and (stated or key not in self.untyped):
                    raise Outside(f"{key}.model_type", self.part_types.get(key) or "null")
                yield key, None
                yield from self._flat(value, f"{key}.", depth - 1)
            elif key in self.split and isinstance(value, str):
                yield key, value.split("|")
            else:
                yield key, value

    def _may_act(self, key: str, config: Mapping[str, Any]) -> bool:
        """Return whether a key without a default may change tensors.

        A key that the source of the class does not read does not, if no newer version wrote it.
        """
        name = key.rpartition(".")[2]
        if key in self.free or name in IGNORED or name == "model_type":
            return False
        if self.hidden is None or name in self.hidden:
            return True
        library, _, own = self.library.partition(" ")
        stated = config.get(f"{'_' * (library == 'diffusers')}{library}_version")
        return stated is not None and _release(stated) > _release(own)

    def _require_covered(self, values: Mapping[str, Any], written: Mapping[str, Any]) -> None:
        for key, allowed in self.guards.items():
            if key in self.implied and key not in written:
                continue
            if not any(is_identical(one, values[key]) for one in allowed):
                raise Outside(key, ", ".join(map(str, allowed))[:80])
        for key, kinds in self.kinds.items():
            if kind_of(values[key]) not in kinds:
                raise Outside(key, ", ".join(kinds))
        for key, items in self.items.items():
            if not all(item in items for item in values[key] or ()):
                raise Outside(key, ", ".join(map(str, items))[:80])
        for key, length in self.lengths.items():
            if not isinstance(values[key], list) or len(values[key]) != length:
                raise Outside(key, f"{length} items")

    def loading(self, config: Mapping[str, Any]) -> Any:
        """Return the class's loading rules as JSON; raise Outside for an uncovered config."""
        values, _ = self.read(config)
        return next(rules for rules, test in self.loadings if evaluator(test)(values, ()))


def derived(key: str, values: Mapping[str, Any], length: Any, element: Any) -> Any:
    """Return the value of a derived key: one, or a list with an item for each place."""
    make = evaluator(element)
    if length is None:
        return make(values, ())
    count = evaluator(length)(values, ())
    if type(count) is not int or count > _MOST_ITEMS:
        raise Outside(key)
    return [make(values, (i,)) for i in range(count)]


def _release(version: object) -> tuple[int, ...]:
    """Return the first two numbers of a version; of anything else, a number above all."""
    numbers = re.match(r"(\d{1,6})\.(\d{1,6})", version) if isinstance(version, str) else None
    return tuple(map(int, numbers.groups())) if numbers else (10**6,)


def kind_of(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "list" if not value else f"list of {type(value[0]).__name__}"
    return "null" if value is None else type(value).__name__
