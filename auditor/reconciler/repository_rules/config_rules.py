"""Facts that a config states twice with different values, and misspelt keys.

The config classes of transformers 5.23 show which of two values counts; a test builds them again.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import chain, islice
from typing import Any, NamedTuple

from auditor.analytic.config_classes import ConfigClass, library
from auditor.analytic.config_classes.declarations import (
    Field,
    is_key_of_any_class,
    of_model_type,
    of_name,
)
from auditor.findings import ConfigContradiction, Finding, OfKeys, UnknownConfigKey
from auditor.observation import Checked
from auditor.reconciler.repository_rules.plain_lists import other_namings
from auditor.reconciler.repository_rules.processors import PAIR
from auditor.reconciler.repository_rules.repository_case import RepositoryCase, value_text

_ROPE = "rope_parameters"
# Earlier names of types of rotary embedding, in Qwen2-VL and Phi-3 -> current names.
_RENAMED = frozenset((("mrope", "default"), ("su", "longrope")))
_SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
)
_LISTS_OF_LAYERS = ("modules_to_not_convert", "llm_int8_skip_modules", "ignored_layers")
_POOLING = "Pooling/config.json"
_LENGTH, _WIDTH = "max_seq_length", "word_embedding_dimension"
_POSITIONS = "position_embeddings.weight"
_NUMBERS = frozenset((int, float))


class Conflict(NamedTuple):
    """Two statements of one fact with different values."""

    first: str  # dotted path of the key
    value: Any
    second: str
    other: Any
    wins: str  # a sentence about the value that is used
    file: str = ""  # file of the second statement; "" for the config


def contradiction_findings(case: RepositoryCase) -> Iterator[Finding]:
    rules = [_unmatched_exceptions, _other_namings, _sentences]
    if not case.is_custom:
        rules = [_rotation, _dtypes, _labels, _windows, _synonyms, _parts, *rules]
    for rule in rules:
        yield from (_finding(case, conflict) for conflict in rule(case))


def _finding(case: RepositoryCase, pair: Conflict) -> OfKeys:
    where = pair.file or case.config_file
    second = pair.second if not pair.file else f"{pair.second} of {pair.file}"
    return ConfigContradiction(
        says=(
            (case.config_file, pair.first, value_text(pair.value)),
            (where, pair.second, value_text(pair.other)),
        ),
        reason=f"{pair.first} is {value_text(pair.value)}, "
        f"{second} {value_text(pair.other)}: {pair.wins}",
        fix=f"make {pair.first} and {second} equal, or remove the one that is wrong",
    )


def _takes(key: str) -> str:
    return f"{library().short} takes {key}"


def _rotation(case: RepositoryCase) -> Iterator[Conflict]:
    """Compare rotary settings: rope_scaling replaces rope_parameters; rope_theta is a default."""
    yield from _rotation_of(case.config, "")
    if part := case.text_part():
        yield from _rotation_of(part[1], f"{part[0]}.")


def _rotation_of(values: Mapping[str, Any], path: str) -> Iterator[Conflict]:
    theta, scaling, own = (values.get(key) for key in ("rope_theta", "rope_scaling", _ROPE))
    for key, rotation in (("rope_scaling", scaling), (_ROPE, own)):
        if not isinstance(rotation, Mapping):
            continue
        base = rotation.get("rope_theta")
        if _NUMBERS.issuperset((type(theta), type(base))) and base != theta:
            name = f"{path}{key}.rope_theta"
            yield Conflict(f"{path}rope_theta", theta, name, base, _takes(name))
        kind, older = rotation.get("rope_type"), rotation.get("type")
        renamed = kind == older or (older, kind) in _RENAMED
        if isinstance(kind, str) and isinstance(older, str) and not renamed:
            name = f"{path}{key}.rope_type"
            yield Conflict(f"{path}{key}.type", older, name, kind, _takes(name))
    if isinstance(scaling, Mapping) and isinstance(own, Mapping) and scaling:
        keys = sorted({*scaling} & {*own} - {"type"})
        differing = [key for key in keys if scaling[key] != own[key]]
        for key in differing[:1]:
            first, second = f"{path}{_ROPE}.{key}", f"{path}rope_scaling.{key}"
            yield Conflict(first, own[key], second, scaling[key], _takes(f"{path}rope_scaling"))


def _dtypes(case: RepositoryCase) -> Iterator[Conflict]:
    older, newer = case.config.get("torch_dtype"), case.config.get("dtype")
    if isinstance(older, str) and isinstance(newer, str):
        plain = (older.removeprefix("torch."), newer.removeprefix("torch."))
        if plain[0] != plain[1] and "auto" not in plain:
            yield Conflict("torch_dtype", older, "dtype", newer, _takes("dtype"))


def _labels(case: RepositoryCase) -> Iterator[Conflict]:
    number, names = case.config.get("num_labels"), case.config.get("id2label")
    numbers = case.config.get("label2id")
    if type(number) is int and isinstance(names, Mapping) and names and len(names) != number:
        count_text = f"{len(names)} labels"
        yield Conflict("num_labels", number, "id2label", count_text, _takes("num_labels"))
    elif isinstance(names, Mapping) and isinstance(numbers, Mapping) and numbers:
        distinct = {name for name in names.values() if isinstance(name, str)}
        if len(distinct) == len(names) != len(numbers):  # two labels with one name are normal
            first, second = f"{len(names)} labels", f"{len(numbers)} labels"
            wins = f"{_takes('id2label')} for the number of labels"
            yield Conflict("id2label", first, "label2id", second, wins)


def _windows(case: RepositoryCase) -> Iterator[Conflict]:
    """Compare layers with a sliding window in layer_types with a window that is off or null."""
    kinds = case.config.get("layer_types")
    if not isinstance(kinds, list) or "sliding_attention" not in kinds:
        return
    used, width = case.config.get("use_sliding_window"), case.config.get("sliding_window", "")
    layers_text = f"{kinds.count('sliding_attention')} x sliding_attention"
    if used is not False and width is not None:
        return
    key, value = ("use_sliding_window", False) if used is False else ("sliding_window", None)
    wins = f"{library().short} takes {key}, and these layers have no window"
    yield Conflict("layer_types", layers_text, key, value, wins)


def _synonyms(case: RepositoryCase) -> Iterator[Conflict]:
    """Compare a key with its synonym from other config classes; the synonym's value is used."""
    if case.kind is None:
        return
    for alias, own in case.kind.attribute_map.items():
        if alias not in case.config or own not in case.config or alias == own:
            continue
        first, second = case.config[own], case.config[alias]
        if first != second and first is not None and second is not None:
            yield Conflict(own, first, alias, second, _takes(alias))


def _parts(case: RepositoryCase) -> Iterator[Conflict]:
    """Compare sizes at a config's top level with its text config's, if only the latter are used."""
    part = case.text_part()
    pair = str(case.config.get("model_type")).endswith(PAIR)
    if part is None or part[0] != ("decoder" if pair else "text_config") or case.kind is None:
        return
    for key in _SIZES:
        top, inner = case.config.get(key), part[1].get(key)
        if key in case.kind.fields or key in case.kind.attribute_map:
            continue
        if type(top) is int and type(inner) is int and top != inner:
            name = f"{part[0]}.{key}"
            yield Conflict(key, top, name, inner, _takes(name))


# --- quantization and sentence-transformers ----------------------------------------------------


def _unmatched_exceptions(case: RepositoryCase) -> Iterator[Conflict]:
    """Report names in lists of exceptions that are one typing error away from stored modules."""
    quantization = case.config.get("quantization_config")
    if not isinstance(quantization, Mapping):
        return
    lists = {key: names for key in _LISTS_OF_LAYERS if (names := quantization.get(key))}
    if not lists:  # before each name is split: DeepSeek-V3 has 92,000
        return
    names_of_all = (*(one.name for one in case.stored), *(one.name for one in case.expected()))
    module_parts = {part for name in names_of_all for part in name.split(".")[:-1]}
    if not module_parts or len(module_parts) > 2_000:  # noqa: PLR2004 - a hostile file's names
        return
    for key, names in lists.items():
        for name in names[:200] if isinstance(names, list) else ():
            if not isinstance(name, str) or not name.replace(".", "").replace("_", "").isalnum():
                continue
            parts = [part for part in name.split(".") if part]
            wrong = next((part for part in parts if part not in module_parts), None)
            meant = wrong and not wrong.isdigit() and near(wrong, module_parts)
            if meant:
                path = f"quantization_config.{key}"
                wins = "it leaves out no module of that name, so that what was meant is converted"
                yield Conflict(path, name, "the tensors", f"have {meant}", wins)


def _other_namings(case: RepositoryCase) -> Iterator[Conflict]:
    """Report a list of modules with names that have a further prefix."""
    for key, entry, module in other_namings(case):
        wins = "loaders find no module of that name, and take the list's other names alone"
        yield Conflict(f"quantization_config.{key}", entry, "the module's name", module, wins)


def _sentences(case: RepositoryCase) -> Iterator[Conflict]:
    """Compare the settings of sentence-transformers with the config of the model that it wraps."""
    width = next(
        (case.config[key] for key in ("hidden_size", "d_model", "dim") if key in case.config), None
    )
    for name in case.companions.files:
        pooling = case.companions.object(name) if name.endswith(_POOLING) else None
        declared = pooling.get(_WIDTH) if pooling else None
        if type(width) is int and type(declared) is int and declared != width:
            wins = (
                "sentence-transformers gives vectors of the model's width, and declares the other"
            )
            yield Conflict("hidden_size", width, _WIDTH, declared, wins, name)
    longest = case.settings.get(_LENGTH)
    if type(longest) is not int:
        return
    rows = [one.shape[0] for one in case.stored if one.shape and one.name.endswith(_POSITIONS)]
    if rows and longest > max(rows):
        wins = "sentence-transformers takes the longer one, for whose last tokens there are no rows"
        yield Conflict("max_position_embeddings", max(rows), _LENGTH, longest, wins, SENTENCE)


SENTENCE = "sentence_bert_config.json"


# --- keys that nobody reads -----------------------------------------------------------------------


_TEXT = "text_config"
# Keys that every config class accepts in addition to its fields.
_TAKEN = frozenset(
    """
    torch_dtype num_labels rope_theta rope_scaling rope_parameters partial_rotary_factor
    quantization_config auto_map transformers_version attn_implementation use_cache
    use_return_dict output_attentions bos_token_id eos_token_id pad_token_id sep_token_id
    decoder_start_token_id tie_word_embeddings add_cross_attention layer_types sliding_window
    use_sliding_window max_window_layers
    """.split()  # noqa: SIM905 - a list of strings would take as many lines
)
# Multimodal types whose config class accepts text keys at the top level, as published configs do.
FLAT = frozenset(("qwen2_vl", "qwen2_5_vl"))
# The most unknown keys that are examined: configs of custom code have some dozens.
_MOST_UNKNOWN = 500


def key_findings(case: RepositoryCase) -> Iterator[Finding]:
    """Report keys that no class of the library reads and that are one slip from a known key.

    A slip adds, drops or changes one letter, or exchanges two neighbours. The known key has to be
    absent, and its default has to be of the value's type.
    """
    if case.kind is None or case.is_custom:
        whose = "of the repository's own code" if case.is_custom else "that is not known"
        text = f"its keys were not compared: they are those of a config class {whose}"
        case.checked["config"] = Checked("incomparable", text)
        return
    text = "its keys agree with each other (rope, window, layers, dtype), and none is misspelt"
    case.checked["config"] = Checked("compared", text)
    yield from _misspelled_keys(case, case.config, case.kind, "")
    for key, part in case.kind.parts.items():
        values = case.config.get(key)
        if isinstance(values, Mapping):
            stated = values.get("model_type", part.model_type)
            kind = of_name(part.class_name) if part.class_name else None
            kind = kind or (of_model_type(stated) if isinstance(stated, str) else None)
            if kind is not None:
                yield from _misspelled_keys(case, values, kind, f"{key}.")


def _misspelled_keys(
    case: RepositoryCase, values: Mapping[str, Any], kind: ConfigClass, path: str
) -> Iterator[Finding]:
    text = None
    if kind.model_type in FLAT and values.get(_TEXT) is None:
        text = kind.parts[_TEXT].class_name
    known_keys = _read_keys(kind.name, text)
    absent = known_keys - values.keys()
    unknown = (key for key in values if key not in known_keys and not key.startswith("_"))
    for key in islice(unknown, _MOST_UNKNOWN):
        value = values[key]
        meant = None if is_key_of_any_class(key) else near(key, absent)
        if meant is None or (key.endswith(_TOKENS) and len(key) == len(meant)):
            continue
        field = _fields(kind.name, text).get(meant)
        default = field.default if field else None
        if not _is_same_kind(value, default):
            continue
        default_text = value_text(default)
        yield UnknownConfigKey(
            says=(
                (case.config_file, path + key, value_text(value)),
                (case.config_file, path + meant, default_text),
            ),
            reason=f"{path}{key} is {value_text(value)}, and no class of type {kind.model_type} "
            f"reads it ({library().short}); {path}{meant} has the default {default_text}",
            fix=f"rename {path}{key} to {path}{meant}",
        )


def _is_same_kind(value: object, default: object) -> bool:
    """Whether a value has the type of a default; null counts as every type."""
    kinds = [
        next((kind for kind in (bool, str, list, dict) if isinstance(one, kind)), float)
        for one in (value, default)
    ]
    return value is None or default is None or kinds[0] is kinds[1]


# Keys that differ by a letter on purpose: bos, eos, boi, eoi, boa, eoa.
_TOKENS = ("_token_id", "_token_index")
_SHORTEST = 6  # of a key; a shorter key is one slip from many others
_LONGEST_KEY = 80  # of a key; no known key is longer


@cache
def _fields(name: str, text: str | None) -> Mapping[str, Field]:
    """Return the fields of the config class `name`, and of its text class `text` if it is given."""
    kinds = filter(None, (of_name(name), of_name(text or "")))
    return {key: field for kind in kinds for key, field in kind.fields.items()}


@cache
def _read_keys(name: str, text: str | None) -> frozenset[str]:
    """Return the keys that a config class reads."""
    kind = of_name(name)
    lists = (kind.attribute_map, kind.parts, kind.read_only) if kind else ()
    keys = {*_fields(name, text), *chain.from_iterable(lists), *_TAKEN, *library().generation}
    return frozenset(keys | {key.removeprefix("_") for key in keys})  # such as _out_features


def near(name: str, known_names: Collection[str]) -> str | None:
    """Return the only known name that differs from this one by a single slip of typing.

    A slip adds, drops or changes one letter, or exchanges two neighbours. Return None if no known
    name or more than one is that similar, or if the name is too short or too long.
    """
    if not _SHORTEST <= len(name) <= _LONGEST_KEY:
        return None
    names = [other for other in known_names if _one_slip(name, other)]
    return names[0] if len(names) == 1 else None


def _one_slip(name: str, other: str) -> bool:
    if len(other) < _SHORTEST - 1 or name == other:
        return False
    pairs = enumerate(zip(name, other, strict=False))
    at = next((at for at, (one, two) in pairs if one != two), min(len(name), len(other)))
    rest, other_rest = name[at:], other[at:]
    is_exchanged = rest[:2] == other_rest[1::-1] and rest[2:] == other_rest[2:]
    changed = (rest[1:], other_rest[1:])
    return is_exchanged or changed[0] in (changed[1], other_rest) or rest == changed[1]
