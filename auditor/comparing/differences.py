"""Compare two checkpoints: tensors, config keys and modules that differ.

Names are in the order of the weight files.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from math import isclose
from typing import Any

from msgspec.structs import replace

from auditor.analytic.config_classes.declarations import of_model_type
from auditor.comparing.records import (
    BytesCompared,
    Changed,
    Comparison,
    ConfigChange,
    Lost,
    NumbersCompared,
)
from auditor.comparing.sides import Side, SideTensor
from auditor.comparing.summary import summary_of
from auditor.names.parts import modules_above

_CONVERTED = (
    "the numbers of tensors in another dtype or packing; --values samples them if both models are "
    "on this machine"
)
_NOT_COMPARED = frozenset({"_name_or_path", "_from_model_config", "transformers_version"})
_ENOUGH = 0.9  # least share of the removed tensors whose names a new prefix explains


def renaming(first: Side, second: Side) -> Callable[[str], str]:
    """Return the function from the first side's names to the second side's."""
    renamed = _renamed(first.tensors, second.tensors)
    return lambda name: (_replaced(name, *renamed) or name) if renamed else name


def compare(
    first: Side,
    second: Side,
    stored: BytesCompared | None = None,
    numbers: Sequence[NumbersCompared] = (),
    unread: Sequence[str] = (),
) -> Comparison:
    """Compare two checkpoints.

    `stored` and `numbers` are the results of reading their weights; `unread` says which numbers
    were not compared, and why.
    """
    stored = stored or BytesCompared()
    renamed = _renamed(first.tensors, second.tensors)
    before, after = first.tensors, second.tensors
    if renamed:
        before = {_replaced(name, *renamed) or name: tensor for name, tensor in before.items()}
    removed = tuple(name for name in before if name not in after)
    added = tuple(name for name in after if name not in before)
    pairs = {name: (before[name], after[name]) for name in before if name in after}
    shapes = {name: (one.shape, other.shape) for name, (one, other) in pairs.items()}
    dtypes = {name: (one.dtype, other.dtype) for name, (one, other) in pairs.items()}
    # Compare files only if both sides have them: names of shards depend on the number of shards.
    places = {
        name: (one.file, other.file)
        for name, (one, other) in pairs.items()
        if {one.file, other.file} <= first.files & second.files
    }
    reshaped = _changed(shapes)
    which = "each of " * bool(stored.other_files)  # the files differ, some of their tensors may not
    bytes_of = f"the bytes of {which}{stored.unknown:,} tensors"
    why = [f"{bytes_of}: {stored.why_unknown}"] * bool(stored.unknown)
    retyped = _changed(dtypes)
    if (retyped or first.layout != second.layout) and not (numbers or unread):
        unread = (_CONVERTED,)
    comparison = Comparison(
        models=(first.model, second.model),
        layouts=(first.layout, second.layout),
        renamed=renamed,
        lost=tuple(_lost(before, after)),
        gained=tuple(_lost(after, before)),
        removed=removed,
        added=added,
        reshaped=reshaped,
        retyped=retyped,
        moved=_changed(places),
        keys=tuple(_config_changes(first, second, (*removed, *added), reshaped)),
        modules=tuple(_modules(before, after)),
        tensors=(len(before), len(after)),
        stored=len(first.stored),
        files=(len(first.files), len(second.files)),
        types=(first.model_type, second.model_type),
        bytes=stored,
        numbers=tuple(numbers),
        not_compared=(*why, *unread, *dict.fromkeys((*first.unchecked, *second.unchecked))),
    )
    return replace(comparison, summary=summary_of(comparison))


def _changed(values: Mapping[str, tuple[object, object]]) -> tuple[Changed, ...]:
    """Return the tensors whose two values are known and differ."""
    return tuple(
        Changed(name=name, before=_text(before), after=_text(after))
        for name, (before, after) in values.items()
        if before != after and before is not None and after is not None
    )


def _text(value: object) -> str:
    """Return a dtype or a file as it is, and a shape as `8 x 4`."""
    return " x ".join(map(str, value)) or "a number" if isinstance(value, tuple) else str(value)


# --- names --------------------------------------------------------------------------------------


def _renamed(
    before: Mapping[str, SideTensor], after: Mapping[str, SideTensor]
) -> tuple[str, str] | None:
    """Return (old, new) if replacing prefix `old` by `new` turns most removed into added names.

    An example is ("", "model."), if `bert.encoder...` became `model.bert.encoder...`. Return None
    if there is no such prefix.
    """
    removed = [name for name in before if name not in after]
    added = [name for name in after if name not in before]
    for old, new in _prefixes(removed, added):
        explained = sum(_replaced(name, old, new) in after for name in removed)
        if explained >= _ENOUGH * len(removed):
            return old, new
    return None


def _prefixes(removed: list[str], added: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (old, new) prefixes that turn one of the first removed names into an added name."""
    for old in removed[:3]:
        for new in added:
            if new.endswith(f".{old}"):
                yield "", new.removesuffix(old)
            elif old.endswith(f".{new}"):
                yield old.removesuffix(new), ""


def _replaced(name: str, old: str, new: str) -> str | None:
    return f"{new}{name[len(old) :]}" if name.startswith(old) else None


# --- modules ------------------------------------------------------------------------------------

_KNOWN_MODULES = (
    (re.compile(r"vision|visual|image"), "the vision tower"),
    (re.compile(r"audio|speech"), "the audio tower"),
    (re.compile(r"mtp|nextn|eagle"), "layers that predict further tokens"),
    (re.compile(r"lm_head|^cls$|classifier|^score$|qa_outputs|embed_out"), "the head"),
    (re.compile(r"pooler"), "the pooler"),
    (re.compile(r"embed|^wte$|^wpe$"), "embeddings"),
    (re.compile(r"lora_|adapter"), "an adapter"),
    (re.compile(r"^\d+$"), "a layer"),
    (re.compile(r"norm|ln_"), "a norm"),
)


def _lost(tensors: Mapping[str, SideTensor], other: Mapping[str, SideTensor]) -> Iterator[Lost]:
    """Yield the outermost modules that have no tensors on the other side."""
    other_modules = {"", *chain.from_iterable(map(modules_above, other))}
    names_by_module: dict[str, list[str]] = {}
    for name in tensors:
        module = next((one for one in modules_above(name) if one not in other_modules), None)
        if name not in other and module is not None:
            names_by_module.setdefault(module, []).append(name)
    for module, names in names_by_module.items():
        last = module.rpartition(".")[2]
        what = next((what for sign, what in _KNOWN_MODULES if sign.search(last)), "")
        count = sum(tensors[name].parameters for name in names)
        yield Lost(module=module, what=what, tensors=len(names), parameters=count)


def _modules(
    before: Mapping[str, SideTensor], after: Mapping[str, SideTensor]
) -> Iterator[tuple[str, int, int]]:
    """Yield (module, parameters before, parameters after) for the model and modules to level 2."""
    counts: dict[str, list[int]] = {"": [0, 0]}
    for side, tensors in enumerate((before, after)):
        for name, tensor in tensors.items():
            module = ".".join(name.split(".")[:-1][:2])
            for prefix in {"", module}:
                counts.setdefault(prefix, [0, 0])[side] += tensor.parameters
    for module, (first, second) in counts.items():
        yield module or "(whole model)", first, second


# --- config keys --------------------------------------------------------------------------------


def _config_changes(
    before: Side, after: Side, names: tuple[str, ...], reshaped: tuple[Changed, ...]
) -> Iterator[ConfigChange]:
    """Yield the keys that differ; `names` are the names of removed and added tensors.

    The metadata of GGUF files lack most keys: only keys that both sides state are compared then.
    """
    first, second = _flat(before.config), _flat(after.config)
    first_defaults, second_defaults = _defaults_of(before), _defaults_of(after)
    is_partial = before.is_gguf or after.is_gguf
    for key in dict.fromkeys((*first, *second)):
        if is_partial and not (key in first and key in second):
            continue
        old = first.get(key, first_defaults.get(key))
        new = second.get(key, second_defaults.get(key))
        # GGUF files store single precision.
        is_close = (
            is_partial
            and isinstance(old, float)
            and isinstance(new, int | float)
            and isclose(old, new, rel_tol=1e-6)
        )
        if old != new and not is_close:
            explains = _explained(key.rpartition(".")[2], (old, new), names, reshaped)
            yield ConfigChange(key=key, before=old, after=new, explains=explains)
    if before.companions is None or after.companions is None:
        return
    for key in dict.fromkeys((*before.companions, *after.companions)):
        old, new = before.companions.get(key), after.companions.get(key)
        if old != new and key.rpartition(" ")[2] not in _NOT_COMPARED:
            yield ConfigChange(key=key, before=old, after=new, explains=0)


def _flat(config: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Return the values by dotted path, with the keys that newer versions of transformers write.

    `torch_dtype` is `dtype`; `rope_parameters` contains what were `rope_theta` and `rope_scaling`.
    """
    values: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and key in {"rope_parameters", "rope_scaling"}:
            values |= {
                f"{path}rope_{name.removeprefix('rope_')}": setting
                for name, setting in value.items()
                if (name, setting) != ("rope_type", "default")
            }
        elif isinstance(value, Mapping):
            values |= _flat(value, f"{path}{key}.")
        elif path or key not in _NOT_COMPARED:
            values[path + ("dtype" if key == "torch_dtype" else key)] = value
    return values


def _defaults_of(side: Side) -> Mapping[str, Any]:
    """Return the defaults of the config's class in transformers, if the class is known."""
    kind = of_model_type(side.model_type) if side.model_type else None
    return {key: field.default for key, field in kind.fields.items()} if kind else {}


def _explained(
    key: str, values: tuple[Any, Any], names: tuple[str, ...], reshaped: tuple[Changed, ...]
) -> int:
    """Count the tensors that differ because of the two values of a key: a size or a layer count."""
    if any(type(value) is not int for value in values):
        return 0
    if "layer" in key:
        fewer, more = sorted(values)
        layers = (re.search(r"\.(\d{1,6})\.", name) for name in names)
        return sum(match is not None and fewer <= int(match[1]) < more for match in layers)
    axes = ((one.before.split(" x "), one.after.split(" x ")) for one in reshaped)
    old, new = values
    sizes = (str(old), str(new))
    return sum(sizes in zip(before, after, strict=False) for before, after in axes)
