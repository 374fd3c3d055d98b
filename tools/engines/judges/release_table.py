"""The configs, rotary frequencies, classes and ties of the release of transformers on the path."""

# ruff: noqa: BLE001 - a release raises what it likes

import inspect
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from engines import saves
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

Config = dict[str, Any]
USUAL = re.compile(
    r"For(CausalLM|ConditionalGeneration|MaskedLM|SequenceClassification|ImageClassification|CTC"
    r"|ObjectDetection)$|Model$|LMHeadModel$|WithProjection$"
)
Seen = tuple[Any, ...]
BASE, OTHER, PARTIAL = 512345.0, 7777.0, 0.5
MANY = 40_000_000  # parameters
_ROPE_KEYS = (
    "rope_theta",
    "rotary_emb_base",
    "global_rope_theta",
    "local_rope_theta",
    "rope_local_base_freq",
    "default_theta",
)
_PARTIAL_KEYS = ("partial_rotary_factor", "rotary_pct", "rope_pct", "rope_percent")
_KINDS = ("full_attention", "sliding_attention")
# T5's code scales the decoder's outputs if the head is tied.
_SCALED_IF_TIED = re.compile(r"if self\.config\.tie_word_embeddings:\n(\s*#.*\n)*\s*(\w+) = \2 \*")
_NEEDS_SCALING = re.compile(r"rope_scaling\[\"mrope_section\"\]")
# Keys without which a type's class is not built small here.
_SETTINGS: Mapping[str, Config] = {
    one: {
        "use_timm_backbone": False,
        "use_pretrained_backbone": False,
        "backbone": None,
        "backbone_config": {
            "model_type": "resnet",
            "embedding_size": 8,
            "hidden_sizes": [8, 8, 16, 16],
            "depths": [1, 1, 1, 1],
            "out_features": ["stage4"],
        },
    }
    for one in ("detr", "conditional_detr", "table-transformer")
}
_MROPE = {"rope_type": "default", "type": "default", "mrope_section": [4, 2, 2]}
_OF_ROPE = frozenset({*_ROPE_KEYS, *_PARTIAL_KEYS, "rope_scaling", "rope_parameters", "rotary_dim"})


def kind_of(name: str) -> str:
    """Return a tensor's name with each number replaced by a star."""
    return ".".join("*" if part.isdecimal() else part for part in name.split("."))


def error_text(error: BaseException) -> str:
    """Return an error's type and the first line of its message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])}"[:160]


# --- configs ------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Return a value as JSON has it; numbers that JSON lacks become text."""
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def config_types() -> Iterator[tuple[str, Any]]:
    """Yield each model type with its config class, the parts of composite models too."""
    seen = set()
    for name in list(CONFIG_MAPPING.keys()):
        with suppress(Exception):
            queue = [(name, CONFIG_MAPPING[name])]
            while queue:
                type_, cls = queue.pop()
                if type_ in seen:
                    continue
                seen.add(type_)
                yield type_, cls
                for sub in (getattr(cls, "sub_configs", None) or {}).values():
                    own = getattr(sub, "model_type", "")
                    if own and own not in seen and own not in CONFIG_MAPPING:
                        queue.append((own, sub))


def source_of(cls: Any) -> str:
    """Return the modeling code of a config's package, without its comments."""
    folder = Path(inspect.getfile(cls)).parent
    files = sorted(folder.glob("modeling_*.py"))
    return "\n".join(file.read_text(errors="replace") for file in files)


def config_entry(cls: Any) -> Config:
    """Return what a release makes of a type's config.json."""
    made = cls()
    defaults = plain(made.to_dict())
    rope_defaults = {
        key: defaults[key] for key in sorted(_OF_ROPE) if defaults.get(key) is not None
    }
    subs = {}
    nested = getattr(made, "sub_configs", None)
    for key, sub in (nested if isinstance(nested, Mapping) else {}).items():
        if own := getattr(sub, "model_type", ""):
            subs[key] = own
        defaults.pop(key, None)
    for key in ("transformers_version", "model_type", *_OF_ROPE):
        defaults.pop(key, None)
    code, configuration = source_of(cls), Path(inspect.getfile(cls)).read_text(errors="replace")
    attributes = set(re.findall(r"\.([A-Za-z_]\w*)|getattr\([^,()]+, \"(\w+)\"", code))
    names = {one or other for one, other in attributes}
    parameters = set(inspect.signature(cls.__init__).parameters)
    fields = set(getattr(cls, "__dataclass_fields__", ()))
    own = (parameters | fields | set(defaults)) - {"self", "kwargs"}
    ties = getattr(made, "tie_word_embeddings", None)
    entry: Config = {
        "class": cls.__name__,
        "defaults": defaults,
        "aliases": dict(getattr(made, "attribute_map", None) or {}),
        "subs": subs,
        "rope_defaults": rope_defaults,
        "read": sorted(key for key in own if key in names),
        "tie": ties,
        "tie_in_code": bool(_SCALED_IF_TIED.search(code)),
        "mentions": sorted(set(re.findall(r"\"([a-z_]\w*)\"", configuration))),
        "scales": bool(re.search(r"config\.scale_decoder_outputs", code)),
    }
    nulls = []
    known = {**defaults, **dict.fromkeys(fields)}
    for key in known:
        try:
            cls.from_dict({key: None})
        except Exception:
            nulls.append(key)
    entry["not_null"] = sorted(nulls)
    return entry


def small_config(type_: str, changes: Mapping[str, Any]) -> Any:
    """Return a small config of a type, with the ids of special tokens that saves have."""
    config = saves.small_config(type_, {**_SETTINGS.get(type_, {}), **changes})
    for at, key in enumerate(("pad_token_id", "bos_token_id", "eos_token_id")):
        with suppress(Exception):
            if getattr(config, key, None) is None:
                setattr(config, key, at)
    return config


def hollow(class_name: str) -> Any:
    """Return a small model of a class on the meta device; rope keys are set if it needs them."""
    type_ = saves.model_type_of(class_name)
    tries: list[Config] = [{}, {"rope_scaling": _MROPE}, {"text_config.rope_scaling": _MROPE}]
    if transformers.__version__ < "5" and "mrope_section" in source_of(CONFIG_MAPPING[type_]):
        tries.reverse()  # it is built without, and its forward pass fails
    for changes in tries:
        config = small_config(type_, changes)
        try:
            with torch.device("meta"):
                return getattr(transformers, class_name)(config)
        except (TypeError, AttributeError) as error:
            last = error
            if "NoneType" not in str(error):
                break
    raise last


# --- rope ---------------------------------------------------------------------------------------


def model_classes(cls: Any) -> Iterator[Any]:
    """Yield classes of a config's package that are built of it, the base model first."""
    module = cls.__module__.replace(".configuration_", ".modeling_")
    with suppress(Exception):
        found = import_module(module)
        own = [
            one
            for one in vars(found).values()
            if inspect.isclass(one)
            and issubclass(one, transformers.PreTrainedModel)
            and getattr(one, "config_class", None) is cls
            and not one.__name__.endswith("PreTrainedModel")
        ]
        yield from sorted(
            own, key=lambda one: (not one.__name__.endswith("Model"), len(one.__name__))
        )


def frequencies(model: Any) -> dict[str, Seen]:
    """Return base, dimensions and other features of each rope buffer of a model, by its place."""
    found: dict[str, Seen] = {}
    for name, module in model.named_modules():
        for key, buffer in module.named_buffers(recurse=False):
            if not key.endswith("inv_freq") or key.startswith("original") or "original" in key:
                continue
            kind = key.removesuffix("inv_freq").strip("_")
            place = kind or ("local" if "local" in name else "")
            values = buffer.double().flatten().tolist()
            scale = getattr(module, f"{kind}_attention_scaling" if kind else "attention_scaling", 1)
            numbers = tuple(float(f"{one:.9g}") for one in (*values[:4], values[-1], float(scale)))
            found[f"{name}|{place}"] = (len(values), *numbers)
    return found


def base_of(seen: Seen) -> float | None:
    """Return the base of frequencies that are not scaled; None if they are."""
    count, first, *rest = seen
    if count < 2 or abs(first - 1) > 1e-6 or rest[0] <= 0:
        return None
    return float(f"{rest[0] ** -count:.4g}")


class RopeProbe:
    """The reading of rope keys by one config class."""

    def __init__(self, cls: Any, model_class: Any, small: Config) -> None:
        self.cls, self.model_class = cls, model_class
        self.small = {key: value for key, value in small.items() if key not in _OF_ROPE}

    def seen(self, keys: Config) -> dict[str, Seen] | str:
        """Return the rope buffers with some keys in config.json, or the error."""
        try:
            config = self.cls.from_dict({**self.small, **keys})
            torch.manual_seed(0)
            return frequencies(self.model_class(config))
        except Exception as error:
            return error_text(error)

    def result(self) -> Config | None:
        """Return, for each rope buffer, the paths of the keys that it follows, and defaults."""
        start, needs = self.seen({}), []
        if isinstance(start, str) and "NoneType" in start:
            self.small["rope_scaling"] = _MROPE
            start, needs = self.seen({}), ["rope_scaling"]
        if isinstance(start, str) or not start:
            return None
        slots: dict[str, Config] = {
            name: {
                "theta": [],
                "partial": [],
                "scaling": [],
                "default": base_of(one),
                "half": one[0],
            }
            for name, one in start.items()
        }
        self._start, self._slots, self._errors = start, slots, {}
        self._follow_all()
        inner = {"rope_type": "default", "rope_theta": OTHER}
        flat = self.seen({"rope_parameters": inner, "rope_theta": BASE})
        by_kind = dict.fromkeys(_KINDS, inner)
        nested = self.seen({"rope_parameters": by_kind, "rope_theta": BASE})
        kept: list[Config] = []
        for name, slot in slots.items():
            slot["partial"] = sorted(set(slot["partial"]))
            both = nested if any(path.count(".") > 1 for path in slot["theta"]) else flat
            slot["top_wins"] = not isinstance(both, str) and has_base(both.get(name, (0, 0, 0)))
            if (slot["theta"] or slot["scaling"]) and slot not in kept:
                kept.append(slot)
        return {"slots": kept, "errors": self._errors, "needs": needs}

    def _follow_all(self) -> None:
        """Note the buffers that follow each key."""
        inner = {"rope_type": "default", "rope_theta": BASE}
        others = {one: {"rope_type": "default", "rope_theta": OTHER} for one in _KINDS}
        linear = {"rope_type": "linear", "factor": 4.0, "rope_theta": BASE}
        self._follow("theta", "rope_parameters.rope_theta", {"rope_parameters": inner})
        for kind in _KINDS:
            keys = {"rope_parameters": {**others, kind: inner}}
            self._follow("theta", f"rope_parameters.{kind}.rope_theta", keys)
        for key in _ROPE_KEYS:
            self._follow("theta", key, {key: BASE})
        for value in (PARTIAL, 1.0):
            keys = {"rope_parameters": {**inner, "partial_rotary_factor": value}}
            self._follow("partial", "rope_parameters.partial_rotary_factor", keys)
            for key in _PARTIAL_KEYS:
                self._follow("partial", key, {key: value})
        self._follow("scaling", "rope_parameters", {"rope_parameters": linear})
        for kind in _KINDS:
            keys = {"rope_parameters": {**others, kind: linear}}
            self._follow("scaling", f"rope_parameters.{kind}", keys)
        self._follow("scaling", "rope_scaling", {"rope_scaling": {**linear, "type": "linear"}})
        if not any(slot["scaling"] for slot in self._slots.values()):
            factors = [4.0] * max(one[0] for one in self._start.values())
            long = {"rope_type": "longrope", "type": "longrope", "rope_theta": BASE}
            long |= {"short_factor": factors, "long_factor": factors}
            for key in ("rope_scaling", "rope_parameters"):
                self._follow("scaling", key, {key: long})

    def _follow(self, field: str, path: str, keys: Config) -> None:
        """Note the buffers that follow some keys."""
        seen = self.seen(keys)
        if isinstance(seen, str):
            self._errors[path] = seen
            return
        for name, one in seen.items():
            if name in self._slots and _IS_HIT[field](one, self._start[name]):
                self._slots[name][field].append(path)


def has_base(seen: Seen) -> bool:
    """Return whether frequencies have the base of the probes."""
    base = base_of(seen)
    return base is not None and abs(base / BASE - 1) < 0.01


_IS_HIT: Mapping[str, Callable[[Seen, Seen], bool]] = {
    "theta": lambda one, _: has_base(one),
    "partial": lambda one, other: one[0] != other[0],
    "scaling": lambda one, other: abs(one[1] / other[1] - 0.25) < 0.01,
}


def rope_entry(type_: str, cls: Any) -> Config | None:
    """Return how a type reads its rope keys; None if it has no rope."""
    if "rope" not in source_of(cls) and "rotary" not in source_of(cls):
        return None
    if type_ in CONFIG_MAPPING:
        small = small_config(type_, {}).to_dict()
    else:
        small = cls.from_dict(saves._small(cls().to_dict(), {}, type_)).to_dict()
    for model_class in model_classes(cls):
        for keys in ({}, {"rope_scaling": _MROPE}):
            with suppress(Exception), torch.device("meta"):
                hollow = model_class(cls.from_dict({**small, **keys}))
                break
        else:
            continue
        if sum(one.numel() for one in hollow.parameters()) > MANY:
            continue
        if found := RopeProbe(cls, model_class, small).result():
            if _NEEDS_SCALING.search(source_of(cls)):  # its forward pass, which is not tried here
                found["needs"] = ["rope_scaling"]
            return found
    return None


# --- classes ------------------------------------------------------------------------------------


def auto_classes() -> dict[str, str]:
    """Return the classes of the auto mappings, with the first model type of each."""
    found: dict[str, str] = {}
    for name, mapping in vars(modeling_auto).items():
        if name.startswith("MODEL_") and name.endswith("_MAPPING_NAMES"):
            for type_, classes in mapping.items():
                for one in (classes,) if isinstance(classes, str) else classes:
                    found.setdefault(one, type_)
    for one in dir(transformers):
        if one.endswith("ModelWithProjection"):
            found.setdefault(one, "")
    return found


def shared(class_name: str, config: Any) -> tuple[dict[str, list[int]], list[list[str]], Any]:
    """Return shapes by kind, the kinds of tensors that are one tensor, and the model."""
    with torch.device("meta"):
        model = getattr(transformers, class_name)(config)
    with suppress(Exception):
        model.tie_weights()
    state = model.state_dict(keep_vars=True)
    groups: dict[int, list[str]] = defaultdict(list)
    for name, tensor in state.items():
        groups[id(tensor)].append(kind_of(name))
    ties = sorted(sorted(set(one)) for one in groups.values() if len(set(one)) > 1)
    return {kind_of(name): list(one.shape) for name, one in state.items()}, ties, model


def class_entry(class_name: str) -> Config:
    """Return the tensors of a class in memory, its ties by the flag, and what it ignores."""
    type_ = saves.model_type_of(class_name)
    small = hollow(class_name).config
    text = small.to_dict()
    kinds, _, model = shared(class_name, small)
    entry: Config = {"type": type_, "memory": sorted(kinds), "ties": {}}
    inner = "text_config" if isinstance(text.get("text_config"), dict) else None
    for word, flag in (("absent", None), ("true", True), ("false", False)):
        for word2, flag2 in (
            (("", None), ("true", True), ("false", False)) if inner else (("", None),)
        ):
            keys = {key: value for key, value in text.items() if key != "tie_word_embeddings"}
            if flag is not None:
                keys["tie_word_embeddings"] = flag
            if inner:
                keys[inner] = {k: v for k, v in keys[inner].items() if k != "tie_word_embeddings"}
                if flag2 is not None:
                    keys[inner]["tie_word_embeddings"] = flag2
            try:
                found = shared(class_name, type(small).from_dict(keys))[1]
            except Exception as error:
                found = error_text(error)
            entry["ties"][f"{word} {word2}".strip()] = found
    for key in ("_keys_to_ignore_on_load_unexpected", "_keys_to_ignore_on_load_missing"):
        if patterns := getattr(model, key, None):
            entry[key.rpartition("_")[2]] = sorted(patterns)
    return entry


# --- tokenizers ---------------------------------------------------------------------------------


def companion_entry() -> Config:
    """Return the classes of tokenizers and processors that a release has."""
    ends = ("Tokenizer", "TokenizerFast", "Processor", "Extractor", "ProcessorFast")
    known = [one for one in dir(transformers) if one.endswith((*ends, "TokenizersBackend"))]
    return {"classes": sorted({*known} - {"PreTrainedTokenizer", "PreTrainedTokenizerFast"})}


def reads_floats() -> bool:
    """Return whether a release reads numbers that JSON lacks as it writes them since version 5."""
    limit = [0.0, {"__float__": "Infinity"}]
    with TemporaryDirectory() as folder:
        text = json.dumps({"model_type": "mamba2", "time_step_limit": limit})
        Path(folder, "config.json").write_text(text)
        with suppress(Exception):
            made = transformers.AutoConfig.from_pretrained(folder)
            return isinstance(made.time_step_limit[1], float)
    return False


def fill(table: Config) -> None:
    """Add what a table lacks: types and classes that were not asked, or gave an error."""
    table |= {"version": transformers.__version__}
    types, classes = table.setdefault("types", {}), table.setdefault("classes", {})
    for type_, cls in config_types():
        if "defaults" not in types.get(type_, {}) or "rope_error" in types[type_]:
            types[type_] = type_entry(type_, cls)
    for class_name in sorted(auto_classes(), key=lambda name: USUAL.search(name) is None):
        if "memory" in classes.get(class_name, {}):
            continue
        try:
            classes[class_name] = class_entry(class_name)
        except Exception as error:
            classes[class_name] = {"error": error_text(error)}
    functions = import_module("transformers.modeling_rope_utils").ROPE_INIT_FUNCTIONS
    table |= {
        "exported": sorted(
            one for one in dir(transformers) if re.search(r"(Model|For[A-Z]\w*)", one)
        ),
        "rope_types": sorted({*functions, "default"}),
        "companions": companion_entry(),
        "floats": reads_floats(),
    }


def type_entry(type_: str, cls: Any) -> Config:
    """Return a type's config and rope; an error stands in the place of what failed."""
    try:
        entry = config_entry(cls)
    except Exception as error:
        return {"class": cls.__name__, "error": error_text(error)}
    try:
        rope = rope_entry(type_, cls)
    except Exception as error:
        return {**entry, "rope_error": error_text(error)}
    return entry if rope is None else {**entry, "rope": rope}
