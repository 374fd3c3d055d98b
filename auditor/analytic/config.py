"""The Config class: typed access to a config.json, as strict as transformers."""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from math import isfinite
from types import MappingProxyType
from typing import Any, NamedTuple, Self, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from auditor.analytic.config_classes import CompletedConfig
from auditor.analytic.dims import Dim, dim
from auditor.analytic.expectation import Symbol
from auditor.analytic.family import Family
from auditor.bounded.json_text import FLOAT, JsonFile, with_floats
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.messages import described

LETTERS: Mapping[str, str] = MappingProxyType(
    {
        "vocab_size": "V",
        "hidden_size": "D",
        "max_position_embeddings": "L",
        "type_vocab_size": "T",
        "num_hidden_layers": "N",
        "intermediate_size": "F",
        "moe_intermediate_size": "F_expert",
        "num_attention_heads": "H",
        "num_key_value_heads": "K",
        "num_experts": "E",
        "num_local_experts": "E",
        "n_routed_experts": "E",
        "num_experts_per_tok": "k",
        "num_experts_per_token": "k",
        "moe_topk": "k",
        "top_k_experts": "k",
        "num_labels": "C",
        "d_model": "D",
        "d_ff": "F",
        "encoder_ffn_dim": "F",
        "decoder_ffn_dim": "F_decoder",
        "decoder_layers": "N_decoder",
        "num_decoder_layers": "N_decoder",
        "embed_dim": "D",
        "hidden_sizes": "D",
        "embedding_size": "D_embedding",
        "ffn_dim": "F",
        "ffn_hidden_size": "F",
        "mlp_dim": "F",
        "n_inner": "F",
        "d_inner": "F",
        "shared_expert_intermediate_size": "F_shared",
        "num_layers": "N",
        "depths": "N",
        "num_heads": "H",
        "num_kv_heads": "K",
        "max_source_positions": "L",
        "max_target_positions": "L_decoder",
        "num_queries": "Q",
        "state_size": "S",
        "n_groups": "G",
        "attention_head_dim": "A",
        "cross_attention_dim": "X",
        "joint_attention_dim": "X",
        "pooled_projection_dim": "P",
        "block_out_channels": "W",
    }
)


DTYPES: Mapping[str, str] = MappingProxyType(
    {
        "bool": "BOOL",
        "uint8": "U8",
        "int8": "I8",
        "int16": "I16",
        "uint16": "U16",
        "int32": "I32",
        "uint32": "U32",
        "int64": "I64",
        "uint64": "U64",
        "float8_e4m3fn": "F8_E4M3",
        "float8_e4m3fnuz": "F8_E4M3FNUZ",
        "float8_e5m2": "F8_E5M2",
        "float8_e5m2fnuz": "F8_E5M2FNUZ",
        "float8_e8m0fnu": "F8_E8M0",
        "float16": "F16",
        "half": "F16",
        "bfloat16": "BF16",
        "float32": "F32",
        "float": "F32",
        "float64": "F64",
        "double": "F64",
        "complex64": "C64",
    }
)


# Keys of configs inside a config. The settings of a packed layout are not such a config.
_PART = re.compile(r"_config$|^(encoder|decoder|generator|question_encoder)$")
_PACKING = re.compile(r"^(quantization|compression)_config$")

_T = TypeVar("_T", bool, str)
_V = TypeVar("_V")


class Config(Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """The values of one config.json.

    A method that reads a value raises CheckpointError, which names the key, if the value is invalid
    or is missing without a default.

    The config and the calling code may use the config class's own keys or synonyms of them
    (`n_embd` or `hidden_size`). Values are as strict as in transformers 5: 768 is a size; "768",
    768.0 and null are not. A key that no builder reads is ignored.
    """

    values: Mapping[str, object]
    family: Family | None = None  # the config class, which has defaults and synonyms
    path: str = ""  # of a config inside a config: "text_config."
    assumed: bool = False  # this nested config is a default: the outer config does not state it
    separate_head: bool = False  # treat a head that the config declares untied as a separate tensor
    # Constructor arguments beside the config, such as add_pooling_layer: `constructor_arguments`.
    arguments: Mapping[str, bool] = MappingProxyType({})
    checked: bool = True  # whether faults of its config class are reported
    completed: CompletedConfig | None = None  # completed by its class in transformers, if known
    # The only mutable field: the defaults that were read; a report lists them as the assumptions
    # of an expectation. A nested config shares the field with the outer config.
    _defaulted: set[str] = field(default_factory=set)

    @cached_property
    def known(self) -> dict[Hashable, Any]:
        """A cache of derived values: builders read a key many times."""
        return {}

    def once(self, key: Hashable, derive: Callable[[], _V]) -> _V:
        """Return the cached value under a key; derive it on the first call."""
        if key not in self.known:
            self.known[key] = derive()
        value: _V = self.known[key]
        return value

    def of(self, family: Family) -> Self:
        """Return this config with the defaults of the family's config class."""
        return replace(self, family=family, _defaulted=self._defaulted if self.path else set())

    @property
    def defaulted(self) -> tuple[str, ...]:
        """The keys read so far that the config leaves out, sorted."""
        return tuple(sorted(self._defaulted))

    def integer(self, key: str) -> int:
        return self._integer(self._find(key))

    def flag(self, key: str) -> bool:
        """Return the key's value as a bool; convert other accepted values as Python does."""
        entry = self._find(key)
        if type(entry.value) is not bool and not self._is_accepted(entry):
            raise _unexpected(entry.spelling, entry.value, "true or false")
        return bool(entry.value)

    def has(self, key: str) -> bool:
        """Return whether the config object in transformers has the key, even if it is null."""
        return key in (self.values if self.completed is None else self.completed)

    def truth(self, key: str) -> bool:
        """Return whether Python treats the value that transformers reads for a key as true."""
        return bool(self.attribute(key))

    def text(self, key: str) -> str:
        return self._typed(key, str, "a string")

    def real(self, key: str) -> float:
        """Return the key's value, an integer or a float, as a float."""
        entry = self._find(key)
        if isinstance(entry.value, bool) or not isinstance(entry.value, int | float):
            raise _unexpected(entry.spelling, entry.value, "a number")
        return float(entry.value)

    def present(self, key: str) -> bool:
        """Return whether the key's value, or its default, is not null."""
        return self._find(key).value is not None

    def attribute(self, key: str) -> Any:
        """Return the value that transformers reads for a key; None if it is absent."""
        if self.completed is not None:
            return self.completed.get(key)
        name = self._name(key)
        stated = (
            self.values[spelling]
            for spelling in (*self._aliases(name), name)
            if spelling in self.values
        )
        return next(stated, self.family.defaults.get(name) if self.family else None)

    def states(self, key: str) -> bool:
        """Return whether the config itself states the key, with a value other than null."""
        name = self._name(key)
        return any(
            self.values.get(spelling) is not None for spelling in (*self._aliases(name), name)
        )

    @property
    def denies_ties(self) -> bool:
        """Whether the config states that embeddings and head are not tied.

        T5's classes tie them nevertheless. But loading keeps both tensors if both are stored,
        as in published checkpoints of T5 v1.1. If the config describes an encoder and a decoder,
        the decoder's config decides.
        """
        decoder = self.values.get("decoder")
        values = decoder if isinstance(decoder, Mapping) else self.values
        return values.get("tie_word_embeddings") is False

    def length(self, key: str) -> int:
        """Return the length of a list of integers; a single integer counts as a list of one."""
        entry = self._find(key)
        return 1 if type(entry.value) is int else len(_items(entry))

    def dim(self, key: str) -> Dim:
        return self.once(key, lambda: self._sized(key))

    def _sized(self, key: str) -> Dim:
        entry = self._find(key)
        return self._dim(entry.name, self._integer(entry), default=entry.default)

    def optional(self, key: str) -> Dim | None:
        """Return a size; None if the value is null: `c.optional("head_dim") or D // H`."""
        return None if self._find(key).value is None else self.dim(key)

    def positive(self, key: str) -> Dim | None:
        """Return a size; None if it is zero or less, as DeBERTa's -1 for an absent size."""
        value = self._find(key).value
        return None if type(value) is int and value < 1 else self.dim(key)

    def dims(self, key: str, *, most: int | None = None) -> tuple[Dim, ...]:
        """Return up to `most` sizes of a list, each with its own symbol: `hidden_sizes[0]`."""
        entry = self._find(key)
        sizes = (self._integer(entry._replace(value=item)) for item in _items(entry)[:most])
        return tuple(
            self._dim(entry.name, value, default=entry.default, index=f"[{place}]")
            for place, value in enumerate(sizes)
        )

    def scaled(self, key: str, size: Dim) -> Dim:
        """Return `int(ratio * size)`, with the ratio under the key: `4*D` for 4.0."""
        ratio = self.real(key)
        if not isfinite(ratio):
            raise _unexpected(self._find(key).spelling, ratio, "a number")
        exact = Fraction(str(ratio))
        quotient = (exact.numerator * size).floor(exact.denominator)
        value = int(ratio * size.value)  # as in transformers: int(0.29 * 100) is 28
        return quotient if quotient.value == value else dim(value)

    def pair(self, key: str) -> tuple[Dim, Dim]:
        """Return height and width: the two sizes in a list, or a single size twice."""
        entry = self._find(key)
        if type(entry.value) is int:
            return self.dim(key), self.dim(key)
        match self.dims(key):
            case (height, width, *_):  # torch ignores further items
                return height, width
        raise _unexpected(entry.spelling, entry.value, "one size or two")

    def integers(self, key: str) -> tuple[int, ...]:
        entry = self._find(key)
        return tuple(self._integer(entry._replace(value=item)) for item in _items(entry))

    def texts(
        self, key: str, *, length: int | None = None, separator: str | None = None
    ) -> tuple[str, ...]:
        """Return a list of strings; split a single string if there is a separator: `p2c|c2p`."""
        entry = self._find(key)
        if separator is not None and isinstance(entry.value, str):
            entry = entry._replace(value=[text.strip() for text in entry.value.split(separator)])
        texts: list[str] = []
        for item in _items(entry, length):
            if not isinstance(item, str):
                raise _unexpected(f"an item of {entry.spelling}", item, "a string")
            texts.append(item)
        return tuple(texts)

    def nested(self, key: str, family: Family | None = None) -> Self:
        """Return a nested config with the family's defaults; only defaults if null or absent."""
        name = self._name(key)
        default = self.family.defaults.get(name) if self.family else None
        stated = self.values.get(name)
        value = default if stated is None else stated
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise _unexpected(self.path + name, value, "an object")
        return replace(
            self,
            values=value,
            family=family,
            path=f"{self.path}{name}.",
            assumed=self.assumed or stated is None,
            completed=self.completed.part(name) if self.completed else None,
        )

    @property
    def num_labels(self) -> Dim:
        """The number of labels of a head: `num_labels`, else the number of keys of `id2label`.

        Without both keys the number is the family's default, else 2. If both are stated,
        transformers 5 uses `num_labels`, and transformers 4 `id2label`.
        """
        labels = self._labels()
        if "num_labels" in self.values:
            stated = self.dim("num_labels")
            return stated if stated.value >= 0 else self._dim("num_labels", 0, default=False)
        if labels is not None:
            return self._dim("num_labels", labels, default=False)
        if self.family and "num_labels" in self.family.defaults:
            return self.dim("num_labels")
        self._defaulted.add(f"{self.path}num_labels")
        return self._dim("num_labels", 2, default=True)

    @property
    def architectures(self) -> tuple[str, ...]:
        names = self.values.get("architectures")
        if names is None:
            return ()
        if not isinstance(names, list):
            raise _unexpected("architectures", names, "a list of class names")
        for name in names:
            if not isinstance(name, str):
                raise _unexpected("a name in architectures", name, "a string")
        return tuple(names)

    @property
    def model_type(self) -> str | None:
        value = self.values.get("model_type")
        if value is not None and not isinstance(value, str):
            raise _unexpected("model_type", value, "a string")
        return value

    @property
    def dtype(self) -> str | None:
        """The declared dtype as safetensors spells it, e.g. "BF16"; None if none is declared.

        `dtype` takes precedence over its older name `torch_dtype`; a "torch." prefix is ignored.
        If only nested configs declare a dtype and all agree, as in Qwen3-VL, it is their dtype.
        """
        key = "torch_dtype" if self.values.get("dtype") is None else "dtype"
        value = self.values.get(key)
        if value == "auto":
            return None
        if value is None:
            inner = {part.dtype for part in self._parts()} - {None}
            return inner.pop() if len(inner) == 1 else None
        if not isinstance(value, str) or value.removeprefix("torch.") not in DTYPES:
            raise _unexpected(self.path + key, value, "a dtype of torch")
        return DTYPES[value.removeprefix("torch.")]

    def assume(self, keys: Iterable[str]) -> None:
        """Record keys that were read and that the config leaves out."""
        self._defaulted.update(f"{self.path}{key}" for key in keys)

    def _parts(self) -> Iterator[Self]:
        """Yield the configs nested in this config, of known and unknown model types."""
        for key, value in self.values.items():
            if isinstance(value, Mapping) and _PART.search(key) and not _PACKING.search(key):
                yield replace(self, values=value, family=None, path=f"{self.path}{key}.")

    def _name(self, key: str) -> str:
        """Return the config class's own name of the key: GPT-2 has n_embd for hidden_size."""
        return self.family.synonyms.get(key, key) if self.family else key

    def _aliases(self, name: str) -> tuple[str, ...]:
        return self.family.aliases.get(name, ()) if self.family else ()

    def _find(self, key: str) -> "_Entry":
        """Return a key's value or default; synonyms take precedence, as in transformers."""
        name = self._name(key)
        for spelling in (*self._aliases(name), name):
            if spelling in self.values:
                return _Entry(name, self.path + spelling, self.values[spelling], self.assumed)
        if self.family is not None and name in self.family.defaults:
            default: object = self.family.defaults[name]
        elif self.completed is not None and name in self.completed:
            default = self.completed[name]
        else:
            spelling = self.path + name
            message = f"{spelling} is not in the config, and its class has no default for it"
            raise CheckpointError(message, spelling)
        self._defaulted.add(self.path + name)
        return _Entry(name, self.path + name, default, default=True)

    def _integer(self, entry: "_Entry") -> int:
        value = entry.value
        if isinstance(value, bool | float) and self._is_accepted(entry):
            detail = (
                f"{entry.spelling} is {described(value)}: what a class makes of it is not known"
            )
            raise SourceError(Reason.UNKNOWN_ARCHITECTURE, detail)
        if type(value) is not int:
            raise _unexpected(entry.spelling, value, "an integer")
        return value

    def _is_accepted(self, entry: "_Entry") -> bool:
        """Return whether transformers accepts the value; it checks only some fields' types."""
        return self.completed is not None and entry.name not in self.completed.mistyped

    def _typed(self, key: str, kind: type[_T], expected: str) -> _T:
        entry = self._find(key)
        if type(entry.value) is not kind:
            raise _unexpected(entry.spelling, entry.value, expected)
        return entry.value

    def _dim(self, name: str, value: int, *, default: bool, index: str = "") -> Dim:
        letter, subscript = self._letter(name), subscript_of(self.path)
        symbol = Symbol(
            letter=(f"{letter}_{subscript}" if subscript else letter) + index,
            key=self.path + name + index,
            value=value,
            default=default,
        )
        return dim(symbol)

    def _letter(self, name: str) -> str:
        own = self.family.letters.get(name) if self.family else None
        return own or letter_of(name, *self._aliases(name))

    def _labels(self) -> int | None:
        labels = self.values.get("id2label")
        if labels is None:
            return None
        if not isinstance(labels, dict):
            raise _unexpected("id2label", labels, "an object from label number to name")
        return len({_label(number) for number in labels})


def letter_of(name: str, *aliases: str) -> str:
    """Return the usual letter of a key in formulas, else its name."""
    return next(filter(None, map(LETTERS.get, (name, *aliases))), name)


def subscript_of(path: str) -> str:
    """Return the subscript of letters of a nested config: "text" for `text_config.`."""
    return re.sub(r"(_config(_dict)?|_cfg)?(\.|$)", "_", path).strip("_")


class _Entry(NamedTuple):
    """The value of a key, stated or default."""

    name: str  # the config class's own key
    spelling: str  # the key as the config spells it, with its path
    value: object
    default: bool


def read_config(file: str, content: bytes) -> Config:
    """Parse a config.json; raise CheckpointError if it is not a JSON object."""
    return config_in(JsonFile(file, content))


def config_in(file: JsonFile) -> Config:
    """Return the config in a file; raise CheckpointError if it is not a JSON object.

    Objects such as {"__float__": "Infinity"}, which transformers writes, become floats.
    """
    values = file.object
    if FLOAT in (file.content or b""):
        values = {key: with_floats(value) for key, value in values.items()}
    return Config(values=MappingProxyType(dict(values)))


def _items(entry: _Entry, length: int | None = None) -> Sequence[object]:
    if not isinstance(entry.value, list | tuple):
        raise _unexpected(entry.spelling, entry.value, "a list")
    if length is not None and len(entry.value) != length:
        message = f"{entry.spelling} has {len(entry.value)} items, expected {length}"
        raise CheckpointError(message, entry.spelling)
    return entry.value


def _label(number: str) -> int:
    try:
        return int(number)
    except ValueError:
        raise _unexpected("a key of id2label", number, "a label's number") from None


def _unexpected(key: str, value: object, expected: str) -> CheckpointError:
    message = f"{key} is {described(value)}, expected {expected}"
    return CheckpointError(message, key.removeprefix("an item of "))
