"""A generated form: data from which a config's tensors of one class are listed."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import prod
from typing import Any

from msgspec import Struct

from auditor.analytic.expectation import ExpectedTensor, Role
from auditor.analytic.generated.expressions import Outside, evaluator, keys_of
from auditor.analytic.loading import Memory
from auditor.bounded.json_text import is_identical
from auditor.names.kinds import name_pattern

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
_MOST_TENSORS = 200_000
_DEEPEST = 4  # levels of nested configs


class Row(Struct, frozen=True, array_like=True):
    """The tensors whose names fit one template; each `*` in it is the index of a loop."""

    template: str
    levels: tuple[tuple[Any, Any], ...]  # per loop: its bound, and a test of each index
    present: Any  # a test of the keys: the row has tensors
    shape: tuple[Any, ...]
    roles: tuple[tuple[tuple[str, str | None], Any], ...]  # role, tied_to, and its test
    seen: Mapping[str, tuple[Any, ...]] = {}  # the values of keys under which it was seen


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
    implied: tuple[str, ...] = ()  # keys that the class derives: guarded only if written
    kinds: Mapping[str, tuple[str, ...]] = {}  # the types of values that were varied
    lengths: Mapping[str, int] = {}
    items: Mapping[str, tuple[Any, ...]] = {}  # what lists of strings may have
    split: tuple[str, ...] = ()  # lists that a config may state as "one|other"
    base_key: str = ""  # the key of a composite config under which the class's own config is
    rows: tuple[Row, ...] = ()
    memory_rows: tuple[Row, ...] = ()  # its tensors in memory, if loading rules do not give them
    loadings: tuple[tuple[Any, Any], ...] = ()  # loading rules, and the test of when they apply

    def values(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of the form's keys, completed as by the library's config class.

        Raise Outside for a key or a value that the form does not cover.
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
        self._derive(values, written)
        self._require_covered(values, written)
        return values

    def _derive(self, values: dict[str, Any], written: Mapping[str, Any]) -> None:
        """Set the keys that the config class derives from others and the config does not state."""
        for key, length, element in self.derived:
            if (stated := written.get(key)) is not None:
                if isinstance(stated, list) and any(keys_of(length)):
                    count = evaluator(length)(values, ())
                    if len(stated) != count:  # a list by layer that differs from the depth
                        raise Outside(key, f"{count} items")
                continue
            if length is None and element is None:
                raise Outside(key)
            if length is None:
                values[key] = evaluator(element)(values, ())
            else:
                count, make = evaluator(length)(values, ()), evaluator(element)
                if type(count) is not int or count > _MOST_TENSORS:
                    raise Outside(key)
                values[key] = [make(values, (i,)) for i in range(count)]

    def _flat(  # noqa: C901 - one branch for each kind of key
        self, config: Mapping[str, Any], path: str, depth: int
    ) -> Iterator[tuple[str, Any]]:
        for name, value in config.items():
            key = path + name
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

    def tensors(self, config: Mapping[str, Any]) -> tuple[ExpectedTensor, ...]:
        """Return the class's tensors, module by module; raise Outside for an uncovered config."""
        return _in_order(self.by_name(config))

    def by_name(self, config: Mapping[str, Any]) -> dict[str, ExpectedTensor]:
        """Return the class's tensors row by row; raise Outside for an uncovered config."""
        return listed(self.rows, self.values(config))

    def memory(self, config: Mapping[str, Any]) -> Memory | None:
        """Return the class's tensors in memory; None if they follow from the loading rules."""
        if not self.memory_rows:
            return None
        tensors = listed(self.memory_rows, self.values(config))
        ties = ((one.name, one.tied_to) for one in tensors.values() if one.tied_to)
        shapes = {name: one.shape for name, one in tensors.items()}
        return Memory(shapes, tuple(ties), unset=None) if shapes else None

    def loading(self, config: Mapping[str, Any]) -> Any:
        """Return the class's loading rules as JSON; raise Outside for an uncovered config."""
        values = self.values(config)
        return next(rules for rules, test in self.loadings if evaluator(test)(values, ()))


def _release(version: object) -> tuple[int, ...]:
    """Return the first two numbers of a version; of anything else, a number above all."""
    numbers = re.match(r"(\d{1,6})\.(\d{1,6})", version) if isinstance(version, str) else None
    return tuple(map(int, numbers.groups())) if numbers else (10**6,)


def kind_of(value: Any) -> str:
    if isinstance(value, list) and value:
        return f"list of {type(value[0]).__name__}"
    return "null" if value is None else type(value).__name__


def listed(rows: Iterable[Row], values: Mapping[str, Any]) -> dict[str, ExpectedTensor]:
    """Return the tensors of rows by name; raise Outside for values that they do not cover."""
    tensors: dict[str, ExpectedTensor] = {}
    for row in rows:
        tensors.update(of_row(row, values))
        if len(tensors) > _MOST_TENSORS:
            raise Outside(next(keys_of(["+", *(bound for bound, _ in row.levels)]), "config"))
    return tensors


class RowLookup(Mapping[str, ExpectedTensor]):
    """The tensors of rows by name; a row is listed at the first name that its template may have.

    A row of experts has 24,576 tensors, and most files have no such name that the class lacks.
    """

    def __init__(self, rows: Iterable[Row], values: Mapping[str, Any]) -> None:
        self._rows: dict[str, list[Row]] = {}
        self._listed: dict[str, Mapping[str, ExpectedTensor]] = {}
        self._values = values
        for row in rows:
            self._rows.setdefault(name_pattern(row.template.replace("*", "0")), []).append(row)

    def __getitem__(self, name: str) -> ExpectedTensor:
        pattern = name_pattern(name)
        if pattern in self._rows and pattern not in self._listed:
            try:
                self._listed[pattern] = listed(self._rows[pattern], self._values)
            except Outside:  # no tensor of the row is known
                self._listed[pattern] = {}
        return self._listed[pattern][name]

    def __iter__(self) -> Iterator[str]:
        return chain.from_iterable(listed(rows, self._values) for rows in self._rows.values())

    def __len__(self) -> int:
        return sum(1 for _ in self)


def of_row(row: Row, values: Mapping[str, Any]) -> Iterator[tuple[str, ExpectedTensor]]:
    if not evaluator(row.present)(values, ()):
        return
    indices: list[tuple[int, ...]] = [()]
    for bound, test in row.levels:
        count, is_there = evaluator(bound), evaluator(test)
        longer = list[tuple[int, ...]]()
        for index in indices:
            turns = count(values, index)
            if type(turns) is not int or turns + len(longer) > _MOST_TENSORS:
                raise Outside(next(keys_of(bound), "config"))
            longer += [(*index, i) for i in range(turns) if is_there(values, (*index, i))]
        indices = longer
    shape = [evaluator(size) for size in row.shape]
    fixed = not reads_index(row.shape)
    roles = [(tag, evaluator(test)) for tag, test in row.roles]
    sizes: tuple[int, ...] | None = None
    for index in indices:
        for key, seen in row.seen.items():
            if not any(is_identical(one, values[key]) for one in seen):
                raise Outside(key, ", ".join(map(str, seen))[:80])
        if sizes is None or not fixed:
            sizes = tuple(size(values, index) for size in shape)
            if any(type(size) is not int or size < 0 for size in sizes):
                raise Outside(next(keys_of(["+", *row.shape]), "config"))
        role, tied_to = next(tag for tag, test in roles if test(values, index))
        name = _filled(row.template, index)
        source = _filled(tied_to, index) if tied_to else None
        yield name, ExpectedTensor(name, sizes, prod(sizes), Role(role), source)


def reads_index(expressions: Sequence[Any]) -> bool:
    """Return whether any expression reads the index of a loop."""
    return any('["i"' in str(one).replace("'", '"') for one in expressions)


def _filled(template: str, index: tuple[int, ...]) -> str:
    if not index or "*" not in template:
        return template
    parts = iter(index)
    return ".".join(str(next(parts)) if part == "*" else part for part in template.split("."))


def _in_order(tensors: Mapping[str, ExpectedTensor]) -> tuple[ExpectedTensor, ...]:
    """Sort tensors by module, in order of first appearance, then by number; tied ones come last."""
    ranks: dict[tuple[int, str], int] = {}  # by the module's rank and the next part of the name
    modules: dict[str, tuple[int, ...]] = {"": ()}  # tensors share most of their modules

    def key_of(path: str) -> tuple[int, ...]:
        """Return the rank and the number of each part of a path."""
        if path in modules:
            return modules[path]
        module, _, part = path.rpartition(".")
        above = modules[module] = key_of(module)
        number = int(part) if part.isdecimal() else -1
        within = above[-2] if above else -1
        return (*above, ranks.setdefault((within, part if number < 0 else "*"), len(ranks)), number)

    keys = {name: key_of(name) for name in tensors}
    ordered = sorted(tensors.values(), key=lambda one: keys[one.name])
    return (
        *(one for one in ordered if one.role is not Role.TIED),
        *(one for one in ordered if one.role is Role.TIED),
    )
