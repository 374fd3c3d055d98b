"""The outcome of loading a GGUF file with llama.cpp, by what its own loader needed.

llama.cpp creates the tensors that an architecture has under its metadata, each with an exact shape.
It refuses a file that lacks one of them, or that stores a tensor which nothing creates. `make
engines` recorded both for small files, as forms: one for each set of flags, such as "has experts".
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import prod
from pathlib import Path
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import decode

from auditor.engines.config_keys import Judgement
from auditor.engines.knowledge import RUNTIME, Knowledge, knowledge_of
from auditor.messages import listed, quoted
from auditor.names.folding import fold

_DATA = Path(__file__).parents[1] / "data" / "engines" / f"{RUNTIME}.json"
_TOKENIZER = "tokenizer.ggml."
_NO_TOKENS = frozenset({"none", "no_vocab"})
_OWN = {"token_types": f"{_TOKENIZER}token_type_count"}
_BLOCKS = "block_count"
_LONGEST = 63  # bytes of a tensor's name
_HEAD_SIZES = ("attention.key_length", "attention.value_length")
_IN_LISTS = {"i32": "i32"}  # the types of items of keys that are always lists
_SLIDING = "_swa"  # the end of keys of blocks with sliding attention, which differ by block
_SHOWN = 3
_NOT_WEIGHTS = frozenset({"I8", "I16", "I32", "I64", "F64"})
_PLAIN = frozenset({"F32", "F16", "BF16"})


class BlockGroup(Struct, frozen=True):
    """The tensors of the blocks that a rule gives."""

    rule: tuple[str, ...]  # a word and a key; () for all blocks that no earlier rule gives
    needs: Mapping[str, tuple[int, ...] | None]  # kind -> positions in `dims`; None: not known
    may: Mapping[str, tuple[int, ...] | None] = {}
    # Kinds in whose place several others need not be stored; None: what it changes is not known.
    instead: Mapping[str, Any] = {}


class BlockList(Struct, frozen=True):
    """A list of blocks such as `blk`; the list "" has the tensors outside of all lists."""

    count: str | None
    groups: tuple[BlockGroup, ...]


class GgufForm(Struct, frozen=True):
    """The tensors of files whose metadata have certain flags."""

    when: Mapping[str, bool]
    lists: Mapping[str, BlockList]
    nonzero: tuple[str, ...]
    required: tuple[str, ...]
    defaults: Mapping[str, str]
    equal: Mapping[str, str] = {}  # keys that may have one value only
    refused_types: Mapping[str, tuple[str, ...]] = {}
    runs: bool = True  # whether a small file computed


class RuntimeEntry(Struct, frozen=True):
    """The record of one architecture."""

    types: Mapping[str, str] = {}  # of the keys that are read
    lists: tuple[str, ...] = ()  # the keys that may have a value for each block
    forms: tuple[GgufForm, ...] = ()
    dims: tuple[str, ...] = ()
    other_heads: bool = False  # whether a file with heads of another size than usual computed
    not_tried: str = ""

    def shapes_need(self, key: str) -> bool:
        """Return whether the shape of a tensor depends on a key."""
        return any(key in re.split(r"[*/+]", expression) for expression in self.dims)


class Vocabularies(Struct, frozen=True):
    """The tokenizers that are known, and the keys without which they are refused."""

    models: frozenset[str]
    pre: frozenset[str]
    required: Mapping[str, tuple[str, ...]]


class Runtime(Struct, frozen=True):
    """The records of one version of llama.cpp."""

    engine: str
    version: str
    date: str
    registered: frozenset[str]
    entries: Mapping[str, Raw]
    vocabulary: Vocabularies

    def entry(self, name: str) -> RuntimeEntry | None:
        """Return the entry of an architecture; None if nothing was recorded."""
        raw = self.entries.get(name)
        return None if raw is None else decode(raw, type=RuntimeEntry)


@cache
def runtime() -> Runtime:
    """Return the records of llama.cpp."""
    return decode(_DATA.read_bytes(), type=Runtime)


class GgufFile(Struct, frozen=True, kw_only=True):
    """The metadata and tensors of a GGUF file, or of all shards."""

    metadata: Mapping[str, Any]
    types: Mapping[str, str]  # of the metadata's values
    lengths: Mapping[str, int]  # of lists
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]


def judgements(known: Runtime, file: GgufFile) -> Iterator[Judgement]:
    """Yield what is unusual about a file; it loads if each judgement loads."""
    long = [name for name in file.shapes if len(name.encode()) > _LONGEST]
    if long:
        yield Judgement(f"{_named(long)}: a name of more than {_LONGEST} bytes", loads=False)
    arch = file.metadata.get("general.architecture")
    if not isinstance(arch, str) or arch not in known.registered:
        what = quoted(arch) if isinstance(arch, str) else "a file without general.architecture"
        yield Judgement(f"it does not know {what}", loads=False)
        return
    yield from _vocabulary(known.vocabulary, file)
    entry = known.entry(arch)
    if entry is None or entry.not_tried:
        why = f": {entry.not_tried}" if entry else ""
        yield Judgement(f"{quoted(arch)} is registered, not tried{why}")
        return
    loading = _Loading(arch, entry, file)
    if wrong := tuple(loading.wrong_keys()):
        yield from wrong
    elif (form := loading.form) is None:
        yield Judgement(f"no file of {arch} with such metadata was tried")
    elif lacking := tuple(loading.lacking_keys(form)):
        yield from lacking
    else:
        yield from loading.unusual_values(form)
        yield from loading.tensors(form)
        yield from loading.refused_types(form)


def _vocabulary(known: Vocabularies, file: GgufFile) -> Iterator[Judgement]:
    """Yield what is wrong with the tokenizer."""
    model = file.metadata.get(f"{_TOKENIZER}model")
    if not isinstance(model, str):
        yield Judgement(f"the metadata lack {_TOKENIZER}model, which it requires", loads=False)
    elif model not in known.models:
        yield Judgement(f"it does not know the tokenizer {quoted(model)}", loads=False)
    else:
        lacking = [
            f"{_TOKENIZER}{key}"
            for key in known.required.get(model, ())
            if f"{_TOKENIZER}{key}" not in file.metadata
        ]
        if lacking:
            what = f"the tokenizer {model} lacks {listed(lacking)}"
            yield Judgement(f"{what}, which it requires", loads=False)
        pre = file.metadata.get(f"{_TOKENIZER}pre")
        if model == "gpt2" and isinstance(pre, str) and pre not in known.pre:
            # The recorder looked for names in small letters.
            is_sure = pre == pre.lower() and "_" not in pre[:1]
            detail = f"it does not know the pre-tokenizer {quoted(pre)}"
            yield Judgement(detail, loads=False if is_sure else None)


@dataclass
class _Comparison:
    """The stored tensors that no block has taken yet, and what was found of the others."""

    rest: dict[str, tuple[int, ...]]
    missing: list[str] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)
    mismatched: list[str] = field(default_factory=list)  # sentences

    def compare(self, name: str, expected: tuple[int, ...] | None) -> None:
        """Compare a stored tensor's shape; None if the expected one is not known."""
        stored = self.rest.pop(name)
        if expected is None:
            self.unclear.append(name)
        elif _without_ones(stored) != _without_ones(expected):
            self.mismatched.append(f"{quoted(name)} is of {stored}, expected {expected}")

    def judgements(self) -> Iterator[Judgement]:
        """Yield what llama.cpp makes of the differences."""
        if self.missing:
            detail = f"{_named(self.missing)}: not stored, and it requires them"
            yield Judgement(detail, loads=False)
        for sentence in self.mismatched[:_SHOWN]:
            yield Judgement(sentence, loads=False)
        if self.unclear:
            yield Judgement(f"{_named(self.unclear)}: not tried")
        if self.rest:
            detail = f"{_named([*self.rest])}: nothing reads them"
            yield Judgement(detail, loads=None if self.unclear else False)


class _Loading:
    """The values that llama.cpp has of the metadata, and the tensors that it creates."""

    def __init__(self, arch: str, entry: RuntimeEntry, file: GgufFile) -> None:
        self._arch, self._entry, self._file = arch, entry, file
        start = f"{arch}."
        values = {
            key.removeprefix(start): value
            for key, value in file.metadata.items()
            if key.startswith(start)
        }
        for key, full in _OWN.items():
            if type(file.metadata.get(full)) is int:
                values[key] = file.metadata[full]
        tokens = file.lengths.get(f"{_TOKENIZER}tokens")
        if file.metadata.get(f"{_TOKENIZER}model") in _NO_TOKENS:
            tokens = values.get("vocab_size") or tokens
        self.values = {**values, "vocabulary": tokens or 0}

    def wrong_keys(self) -> Iterator[Judgement]:
        """Yield the keys whose values have a type or a length that is refused or was not tried."""
        blocks = self.values.get(_BLOCKS)
        for full in _OWN.values():
            if (found := self._file.types.get(full)) not in {None, "u32"}:
                yield Judgement(f"the type of {full} is {found}, expected u32", loads=False)
        full = f"{self._arch}.vocab_size"  # read if there is no tokenizer
        if (found := self._file.types.get(full)) not in {None, "u32"}:
            is_read = self._file.metadata.get(f"{_TOKENIZER}model") in _NO_TOKENS
            detail = f"the type of {full} is {found}, expected u32"
            yield Judgement(detail, loads=False if is_read else None)
        for key, kind in self._entry.types.items():
            full = f"{self._arch}.{key}"
            found = self._file.types.get(full)
            if found in {None, kind} or kind == "arr" or found == f"array of {_IN_LISTS.get(kind)}":
                continue
            if found and found.startswith("array of ") and key in self._entry.lists:
                length = self._file.lengths.get(full)
                if length != blocks:
                    detail = f"{full} has {length} values, expected {blocks} (block_count)"
                    yield Judgement(detail, loads=False)
            else:
                is_list = bool(found) and str(found).startswith("array of ")
                detail = f"the type of {full} is {found}, expected {kind}"
                yield Judgement(detail, loads=None if is_list else False)

    @cached_property
    def form(self) -> GgufForm | None:
        """The form whose flags the metadata have; None if there is no such form."""
        for form in self._entry.forms:
            if all(bool(self.value(key, form=form)) is flag for key, flag in form.when.items()):
                return form
        return None

    def value(self, key: str, number: int = 0, form: GgufForm | None = None) -> int:
        """Return the value of a key for a block, by default 0."""
        value = self.values.get(key)
        if value is None:
            text = (form or self.form_or_none or _NO_FORM).defaults.get(key)
            return 0 if text is None or text == key else self.number(text, number)
        if isinstance(value, tuple):
            if key in (form or _NO_FORM).when or number < 0:
                return max((int(one) for one in value if isinstance(one, int)), default=0)
            value = value[number] if number < len(value) else 0
        return int(value) if isinstance(value, int) else 0

    @property
    def form_or_none(self) -> GgufForm | None:
        """The form, once it was chosen."""
        return self.__dict__.get("form")

    def number(self, expression: str, number: int) -> int:
        """Return the value of a sum of products, each with a divisor; -1 if it has none."""
        total = 0
        for term in expression.split("+"):
            product, _, divisor = term.partition("/")
            factors = [self._factor(part, number) for part in product.split("*")]
            below = self._factor(divisor, number) if divisor else 1
            if below <= 0:
                return -1
            total += prod(factors) // below
        return total

    def _factor(self, text: str, number: int) -> int:
        return int(text) if text.lstrip("-").isdecimal() else self.value(text, number)

    def lacking_keys(self, form: GgufForm) -> Iterator[Judgement]:
        """Yield the keys without which a file is refused, or was not tried."""
        if lacking := [key for key in form.required if key not in self.values]:
            detail = f"the metadata lack {self._full(lacking)}, which it requires"
            yield Judgement(detail, loads=False)
        needed = [key for key in form.nonzero if self._entry.shapes_need(key)]
        if zero := [key for key in needed if not self.value(key)]:
            is_sure = any(key in self.values or key in form.defaults for key in zero)
            detail = f"{self._full(zero)}, on which shapes depend: absent or 0"
            yield Judgement(detail, loads=False if is_sure else None)

    def unusual_values(self, form: GgufForm) -> Iterator[Judgement]:
        """Yield the keys whose values are refused, or with which no file computed."""
        for key, expression in form.equal.items():
            value, needed = self.value(key), self.number(expression, 0)
            if key in self.values and value != needed:
                detail = f"{self._full([key])} is {value}, expected {needed} ({expression})"
                yield Judgement(detail, loads=False)
        usual = {key: self.number(form.defaults.get(key, "0"), 0) for key in _HEAD_SIZES}
        sizes = [key for key in _HEAD_SIZES if self.values.get(key, usual[key]) != usual[key]]
        if sizes and not self._entry.other_heads:
            yield Judgement(f"no file with another value of {self._full(sizes)} was tried")
        for key in form.defaults:
            if key.endswith(_SLIDING) and self.value(key) != self.value(key.removesuffix(_SLIDING)):
                yield Judgement(f"no file with another value of {self._full([key])} was tried")
        if not form.runs:
            yield Judgement(f"no small file of {self._arch} computed")

    def _full(self, keys: list[str]) -> str:
        return listed([f"{self._arch}.{key}" for key in keys])

    def tensors(self, form: GgufForm) -> Iterator[Judgement]:
        """Yield the tensors that are missing, too many or of another shape."""
        compared = _Comparison(rest=dict(self._file.shapes))
        for list_, blocks in form.lists.items():
            count = 1 if blocks.count is None else self.number(blocks.count, 0)
            if not 0 <= count <= len(self._file.shapes) + 1:
                yield Judgement(f"the file has fewer tensors than {count} blocks", loads=False)
                return
            for number in range(count):
                group = self._group(blocks, number)
                if group is None:
                    yield Judgement(f"no file with such a block {number} was tried")
                    return
                start = f"{list_}.{number}." if list_ else ""
                self._compare_block(group, start, number, compared)
        yield from compared.judgements()

    def _compare_block(
        self, group: BlockGroup, start: str, number: int, compared: "_Comparison"
    ) -> None:
        """Compare the tensors of a block, and take them out of the rest."""
        replaced: set[str] = set()
        shapes = {**group.needs, **group.may}
        for kind, one in group.instead.items():
            if start + kind in compared.rest:
                shapes[kind] = one["shape"] if one else None
                replaced |= {*one["replaces"]} if one else set()
        for kind, dims in shapes.items():
            name = start + kind
            if name in compared.rest:
                expected = None
                if dims is not None:
                    expected = tuple(self.number(self._entry.dims[at], number) for at in dims)
                compared.compare(name, expected)
            elif kind in group.needs and kind not in replaced:
                compared.missing.append(name)

    def _group(self, blocks: BlockList, number: int) -> BlockGroup | None:
        for group in blocks.groups:
            if not group.rule:
                return group
            word, key = group.rule
            if _holds(word, number, self.value(key, number)):
                return group
        return None

    def refused_types(self, form: GgufForm) -> Iterator[Judgement]:
        """Yield the tensors whose types stop the first computation, or were not tried."""
        refused: list[str] = []
        unclear: list[str] = []
        for name, dtype in self._file.dtypes.items():
            kind = ".".join("*" if part.isdecimal() else part for part in name.split("."))
            is_vector = kind in form.refused_types.get("F16", ())
            if dtype == "F32":
                continue
            if dtype in _NOT_WEIGHTS or (dtype == "BF16" and is_vector):
                unclear.append(name)
            elif dtype not in _PLAIN and kind in form.refused_types.get("Q8_0", ()):
                refused.append(name)
            elif is_vector:
                (refused if dtype == "F16" else unclear).append(name)
        if refused:
            detail = f"{_named(refused)}: not F32, so that the first computation stops"
            yield Judgement(detail, loads=False)
        if unclear:
            yield Judgement(f"{_named(unclear)}: no file with such types was tried")


_NO_FORM = GgufForm(when={}, lists={}, nonzero=(), required=(), defaults={})


def _holds(word: str, number: int, value: int) -> bool:
    """Return whether a rule gives a block; the words are those of the recorder."""
    match word:
        case "below":
            return number < value
        case "from":
            return number >= value
        case "every" | "but every":
            return value > 0 and ((number + 1) % value == 0) is (word == "every")
        case "multiple" | "no multiple":
            return value > 0 and (number % value == 0) is (word == "multiple")
        case _:
            return (value != 0) is (word == "on")


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape without the leading ones, which llama.cpp does not see."""
    at = next((at for at, length in enumerate(shape) if length != 1), max(len(shape) - 1, 0))
    return shape[at:]


def _named(names: list[str]) -> str:
    patterns = fold(tuple(names))
    more = len(patterns) - _SHOWN
    return ", ".join(patterns[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def record_of(engine: str) -> Knowledge | Runtime:
    """Return what was recorded of an engine."""
    return runtime() if engine == RUNTIME else knowledge_of(engine)
