"""A class as a function: from a config as written to its resolved keys and its tensors."""

import inspect
import json
import re
import sys
import warnings
from ast import literal_eval
from collections.abc import Iterable, Iterator
from contextlib import suppress
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import to_builtins
from msgspec.structs import replace

from auditor.analytic.conversions import class_memory
from auditor.analytic.expectation import Expectation
from auditor.analytic.generated.form import IGNORED
from auditor.oracle.build import checked_config, own_config
from auditor.oracle.inventory import inventory
from catalogue.components import JOINT, MENU, STARTS, expressions

# Reads of a key that may be absent: a plain `config.key` raises if its class has no such key.
_READ = re.compile(r'(?:attr\([\w.]+, |kwargs\.(?:pop|get)\(\s*|kwargs\[)"(\w+)"')
# Reads of a config's key that may be absent, without the path to the config.
_ABSENT = re.compile(r'getattr\((?:\w+\.)*\w*config, "(\w+)", ')
# Reads of keys whose names the source does not state.
_COMPUTED = re.compile(r'kwargs(?:\.(?:pop|get)\(|\[)\s*[^\s"]')
# The base class of all configs reads these to validate.
_VALIDATED = frozenset({"embed_dim", "num_heads", "vocab_size"})
_SEEDS = Path(__file__).with_name("seeds.json")  # by type, keys without which it is not built
# Values for keys whose default is null: 0 is the number of attention heads.
_STAND_INS = [
    (re.compile(pattern), size)
    for pattern, size in {
        r"heads$": 0,
        r"(dim|size|rank|channels)$": 64,
        r"(group|groups)$": 1,
        r"(length|layers|experts|per_tok|topk|top_k)$": 8,
    }.items()
]
Tensors = dict[str, tuple[tuple[int, ...], tuple[str, str | None]]]
MEMORY = "memory:"  # begins the names of tensors in memory, where they are learned


class Sample(NamedTuple):
    """A config as written, the values that its class makes of it, and its tensors."""

    written: dict[str, Any]
    flat: frozenset[str]  # the keys that are written
    leaves: dict[str, Any]
    tensors: Tensors
    loading: str


def put(config: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    for part in path:
        config = config.setdefault(part, {})
    config[last] = value


class Probe:
    """The class; `errors` has the last message of a config that could not be built."""

    def __init__(self, library: str, target: str) -> None:
        self.library, self.target = library, target
        self.builds, self.error = 0, ""
        self.parts: dict[str, str | None] = {}  # nested configs: their default model types
        self.nullable: set[str] = set()  # keys that may be null
        self.known: dict[str, Sample | None] = {}
        self.needed: dict[str, Any] = {}  # keys without which the class cannot be built
        self.menu: dict[str, list[Any]] = {}  # values to try of keys
        self.joint: list[dict[str, Any]] = []  # keys that act only together
        self.hints: list[Any] = []  # expressions to try
        if library == "diffusers":
            import diffusers  # noqa: PLC0415 - seconds

            self.model_class: Any = getattr(diffusers, target)
            self.config_class: Any = None
            self.needed = dict(STARTS.get(target, {}))
            self.menu, self.joint = MENU.get(target, {}), JOINT.get(target, [])
            self.hints = expressions(target)
        else:
            import transformers  # noqa: PLC0415 - likewise

            self.model_class = getattr(transformers, target)
            self.config_class = self.model_class.config_class
            transformers.PreTrainedConfig.__repr__ = object.__repr__  # from_dict logs it: 2 ms

    @property
    def model_type(self) -> str:
        return self.config_class.model_type if self.config_class else ""

    def leaves(self, config: dict[str, Any]) -> dict[str, Any]:
        if self.config_class is None:
            signature = inspect.signature(self.model_class.__init__).parameters
            empty = inspect.Parameter.empty
            given = {k: v for k, v in config.items() if k in signature}
            found = {k: v.default for k, v in signature.items() if v.default is not empty} | given
            return json.loads(json.dumps(found, default=str))
        own = own_config(self.config_class, checked_config(config))
        return dict(self._flat(self.config_class.from_dict(own), "", config))

    def _flat(self, config: Any, path: str, written: Any) -> Iterator[tuple[str, Any]]:
        from transformers import PreTrainedConfig  # noqa: PLC0415 - seconds

        table = config.to_dict()
        yield f"{path}num_labels", config.num_labels
        self.nullable.update(path + name for name in _may_be_null(type(config)))
        for name, value in table.items():
            inner = vars(config).get(name)
            if isinstance(inner, PreTrainedConfig):
                self.parts.setdefault(path + name, inner.model_type or None)
                yield from self._flat(inner, f"{path}{name}.", written.get(name) or {})
            elif name not in ("model_type", "id2label", "label2id", "num_labels"):
                yield path + name, json.loads(json.dumps(value, default=str))
        for name, value in _taken(type(config)).items():
            if name not in table:
                yield path + name, written.get(name, value)

    def full(self, overrides: dict[str, Any]) -> dict[str, Any]:
        """Return a written config with these keys, and the model types that it needs."""
        config: dict[str, Any] = {"model_type": self.model_type} if self.config_class else {}
        for key, value in {**self.needed, **overrides}.items():
            for end in range(1, key.count(".") + 1):
                part = ".".join(key.split(".")[:end])
                if self.parts.get(part):
                    put(config, f"{part}.model_type", self.parts[part])
            put(config, key, value)
        return config

    def __call__(self, overrides: dict[str, Any]) -> Sample | None:
        key = json.dumps(overrides, sort_keys=True)
        if key not in self.known:
            flat = frozenset({**self.needed, **overrides})
            self.known[key] = self._sample(self.full(overrides), flat)
        return self.known[key]

    def needs_type(self, part: str, sample: Sample) -> bool:
        """Return whether a nested config differs without its model type."""
        config = deepcopy(sample.written)
        *path, last = part.split(".")
        within = config
        for name in path:
            within = within[name]
        within[last].pop("model_type", None)
        other = self._sample(config, sample.flat)
        return other is None or other[2:] != sample[2:]

    def _sample(self, config: dict[str, Any], flat: frozenset[str]) -> Sample | None:
        self.builds += 1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                leaves = self.leaves(deepcopy(config))
                built = inventory(self.library, self.target, deepcopy(config))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - a library may raise anything at a config
            self.error = str(error)[:200]
            return None
        self.built = built
        tensors = {t.name: (t.shape, (t.role.value, t.tied_to)) for t in built.tensors}
        tensors.update(_in_memory(built))
        loading = to_builtins(replace(built.loading, memory=None))
        text = json.dumps(loading, sort_keys=True, default=sorted)
        return Sample(config, flat, leaves, tensors, text)

    def default(self) -> Sample | None:
        """Return the default config's sample, with values for the keys that it lacks.

        Some classes cannot be built from their defaults: `head_dim` is null, and every real config
        states it.
        """
        if self({}) is None and self.config_class is not None:
            seeds = json.loads(_SEEDS.read_bytes()).get(self.model_type, {})
            stand_ins = self._stand_ins()
            for needed in (seeds, stand_ins, stand_ins | seeds):
                self.needed = dict(needed)
                self.known.clear()
                if self({}) is not None:
                    break
            for key in list(self.needed):  # keep those without which it is not built
                value = self.needed.pop(key)
                self.known.clear()
                if self({}) is None:
                    self.needed[key] = value
            self.known.clear()
        return self({})

    def _stand_ins(self) -> dict[str, Any]:
        try:
            leaves = self.leaves(self.full({}))
        except Exception:  # noqa: BLE001 - a library may raise anything at a config
            return {}
        found: dict[str, Any] = {}
        for key, value in leaves.items():
            path, _, last = key.rpartition(".")
            size = next((size for pattern, size in _STAND_INS if pattern.search(last)), None)
            if isinstance(value, list) and value:  # a tuple, where a list is expected
                found[key] = value
            elif value is None and size is not None:
                heads = leaves.get(f"{path}.num_attention_heads".lstrip("."))
                found[key] = heads if size == 0 and heads else size or 4
            elif value is False and last == "is_decoder":
                found[key] = True
        return found

    def words(self, key: str) -> list[str]:
        """Return strings that the class's source compares a key with."""
        last = re.escape(key.rpartition(".")[2])
        source = inspect.getsource(inspect.getmodule(self.model_class))
        found = re.findall(rf"[\"']([\w.-]+)[\"'] in (?:\w+\.)*{last}\b", source)
        if last.endswith("layer_types"):
            found += [one for one in _layer_types() if re.search(rf"[\"']{one}[\"']", source)]
        for match in re.finditer(rf"\b{last}\s*(?:==|!=|in|not in)\s*([^\n:]+)", source):
            found += re.findall(r"[\"']([\w.-]+)[\"']", match[1])
        return list(dict.fromkeys(found))[:6]


def _layer_types() -> tuple[str, ...]:
    from transformers.configuration_utils import ALLOWED_LAYER_TYPES  # noqa: PLC0415 - seconds

    return tuple(ALLOWED_LAYER_TYPES)


@lru_cache(maxsize=64)
def _taken(config_class: Any) -> dict[str, Any]:
    """Return the keys that a config class does not keep, with their defaults.

    They are taken by the config class, or read by its models where they may be absent.
    """
    folder = Path(inspect.getfile(config_class)).parent
    source = Path(inspect.getfile(config_class)).read_text(encoding="utf-8")
    found = re.findall(r'kwargs\.(?:pop|get)\("(\w+)", (\d+|True|False|None)\)', source)
    taken = {name: literal_eval(default) for name, default in found}
    for file in sorted(folder.glob("modeling_*.py")):
        names = _ABSENT.findall(file.read_text(encoding="utf-8"))
        taken |= {name: None for name in names if name not in taken}
    own = {*(config_class.attribute_map or ()), *dir(config_class)}
    return {name: value for name, value in taken.items() if name not in IGNORED | own}


def _may_be_null(config_class: Any) -> frozenset[str]:
    """Return the keys that a config class declares as null or a number."""
    fields = getattr(config_class, "__dataclass_fields__", {})
    return frozenset(name for name, one in fields.items() if "None" in str(one.type))


def keys_read(target: str, model_types: Iterable[str]) -> list[str] | None:
    """Return the keys beside its defaults that a class of transformers reads, without their paths.

    They are the keys that may be absent in the source of its own folder and of the folders of its
    nested configs' types, and the other names of the keys of the config classes there. Return None
    if a config class computes the names of keys that it reads.
    """
    import transformers  # noqa: PLC0415 - seconds

    model_class = getattr(transformers, target)
    types = [transformers.CONFIG_MAPPING[each] for each in model_types]
    base = Path(inspect.getfile(transformers.PreTrainedConfig))
    names = {*_READ.findall(base.read_text(encoding="utf-8"))} - _VALIDATED
    modules = {sys.modules[each.__module__] for each in (model_class.config_class, *types)}
    if any(_COMPUTED.search(inspect.getsource(module)) for module in modules):
        return None
    for each in (one for module in modules for one in vars(module).values()):
        if isinstance(each, type) and issubclass(each, transformers.PreTrainedConfig):
            names.update(each.attribute_map or ())
            names.update(name for name in dir(each) if isinstance(getattr(each, name), property))
            with suppress(Exception):  # a config class may have no usable default
                names.update(inspect.signature(each).parameters.keys() - each().to_dict().keys())
    files = [
        file
        for each in (model_class, *types)
        for file in sorted(Path(inspect.getfile(each)).parent.glob("[mc]o*_*.py"))
    ]
    texts = (file.read_text(encoding="utf-8") for file in dict.fromkeys(files))
    names.update(name for text in texts for name in _READ.findall(text))
    return sorted(name for name in names - IGNORED if not name.startswith("rope_"))


def _in_memory(built: Expectation) -> Tensors:
    """Return the tensors in memory, each after MEMORY; {} if the loading rules give them."""
    loading = built.loading
    memory = loading.memory
    if memory is None or not loading.reports:
        return {}
    derived = class_memory(replace(built, loading=replace(loading, memory=None)))
    if dict(memory.shapes) == dict(derived.shapes) and {*memory.ties} == {*derived.ties}:
        return {}
    sources = dict(memory.ties)
    return {
        f"{MEMORY}{name}": (shape, ("tied" if name in sources else "parameter", sources.get(name)))
        for name, shape in memory.shapes.items()
    }
