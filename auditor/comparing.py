"""Compare two checkpoints: tensors, config keys and modules that differ.

Names are in the order of the weight files. Each of the two checkpoints is called a side.
"""

import re
from collections.abc import Iterator, Mapping
from math import prod
from typing import Any, NamedTuple

from msgspec import Struct

from auditor.bounded.json_text import parse_object
from auditor.checkpoint.snapshot import Snapshot
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.layouts import unknown_quantization, unpack_tensors
from auditor.layouts.declared import declaration
from auditor.messages import quoted
from auditor.presented import Presented
from auditor.reconciler.contents import contents
from auditor.tensors import StoredTensor, learned


class SideTensor(NamedTuple):
    """A tensor of one checkpoint as loaded: a packed weight with its scales is one tensor."""

    shape: tuple[int, ...] | None  # None: only an index names the tensor, or its shape is unknown
    dtype: str | None
    file: str
    parameters: int


class Side(Struct, frozen=True, kw_only=True):
    """A checkpoint on either side of a comparison."""

    model: str
    tensors: Mapping[str, SideTensor]
    config: Mapping[str, Any]
    layout: str | None = None  # how the weights are packed
    files: frozenset[str] = frozenset()


def side_of(snapshot: Snapshot) -> Side:
    """Return a checkpoint's tensors and config; raise SourceError if it has nothing to compare."""
    stored, model = contents(snapshot), snapshot.model
    if stored.empty:
        raise SourceError(Reason.NO_WEIGHTS, f"{model} has no weights to compare")
    if stored.unread:
        names = ", ".join(sorted(item.file for item in stored.unread)[:3])
        raise SourceError(Reason.UNREADABLE, f"{model}: {names} cannot be read")
    file, packing = snapshot.config, snapshot.packing
    try:
        config = dict(parse_object(file.content, file.name)) if file else {}
        declared = declaration(config, {packing.name: packing.content} if packing else {})
        packer = unknown_quantization(declared) if declared else None
        if packer is not None:
            raise SourceError(Reason.UNKNOWN_LAYOUT, f"{model} is packed by {packer}")
        # Without an architecture there are no expected shapes: packed shapes stay unknown.
        unpacked = unpack_tensors(stored.tensors, declared, lambda _name: None)
    except CheckpointError as error:
        raise SourceError(Reason.UNKNOWN_LAYOUT, f"{model}: {error}") from None
    packed_names = {piece.stored.name for piece in unpacked.tensors}
    packed_names |= {note.name for data in unpacked.quantization_data for note in data.tensors}
    tensors = {
        tensor.name: _plain(tensor) for tensor in stored.tensors if tensor.name not in packed_names
    }
    for piece in unpacked.tensors:
        count = prod(piece.shape) if piece.shape is not None else 0
        tensors[piece.name] = SideTensor(piece.shape, piece.dtype, piece.stored.file, count)
    return Side(
        model=model,
        tensors=tensors,
        config=config,
        layout=unpacked.layout if unpacked.tensors else None,
        files=frozenset(tensor.file for tensor in stored.tensors),
    )


def _plain(tensor: StoredTensor) -> SideTensor:
    count = (tensor.elements or 0) if learned(tensor) else 0
    return SideTensor(tensor.shape, tensor.dtype, tensor.file, count)


# --- differences ---------------------------------------------------------------------------------


_NOT_COMPARED = frozenset({"_name_or_path", "transformers_version"})
_MOST_LOST = 3  # lost modules in one line
_ENOUGH = 0.9  # least share of the removed tensors whose names a new prefix explains


class Lost(Struct, frozen=True, kw_only=True):
    """A module with tensors on one side and none on the other."""

    module: str
    what: str  # "a vision tower"; "" if the name is not known
    tensors: int
    parameters: int


class Changed(Struct, frozen=True, kw_only=True):
    """A tensor whose shape, dtype or file differs between the sides, with both values as text."""

    name: str
    before: str
    after: str


class ConfigChange(Struct, frozen=True, kw_only=True):
    """A config key with different values on the two sides."""

    key: str
    before: Any  # None: the config has no such key
    after: Any
    explains: int  # number of removed, added or reshaped tensors that follow from the two values


class Comparison(Presented, Struct, frozen=True, kw_only=True):
    """The differences of two checkpoints."""

    models: tuple[str, str]
    layouts: tuple[str | None, str | None]
    renamed: tuple[str, str] | None = None  # the prefix of nearly all names, before and after
    lost: tuple[Lost, ...] = ()  # modules with tensors on the first side only
    gained: tuple[Lost, ...] = ()
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    reshaped: tuple[Changed, ...] = ()
    retyped: tuple[Changed, ...] = ()
    moved: tuple[Changed, ...] = ()
    keys: tuple[ConfigChange, ...] = ()
    modules: tuple[tuple[str, int, int], ...] = ()  # module, its parameters on each side

    @property
    def same(self) -> bool:
        tensors = (self.removed, self.added, self.reshaped, self.retyped, self.moved)
        return not (any(tensors) or self.keys or self.renamed)

    def __repr__(self) -> str:
        """Return one line of counts, because the fields name every tensor that differs."""
        words = [quoted(model) for model in self.models]
        words += [f"lost {one.what or quoted(one.module)}" for one in self.lost[:_MOST_LOST]]
        changes = {
            "removed": self.removed,
            "added": self.added,
            "reshaped": self.reshaped,
            "re-typed": self.retyped,
            "moved": self.moved,
            "config keys": self.keys,
        }
        words += [f"{len(changed):,} {what}" for what, changed in changes.items() if changed]
        return f"Comparison({', '.join([*words, *(['the same'] if self.same else [])])})"


def compare(first: Side, second: Side) -> Comparison:
    """Compare two checkpoints."""
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
    return Comparison(
        models=(first.model, second.model),
        layouts=(first.layout, second.layout),
        renamed=renamed,
        lost=tuple(_lost(before, after)),
        gained=tuple(_lost(after, before)),
        removed=removed,
        added=added,
        reshaped=reshaped,
        retyped=_changed(dtypes),
        moved=_changed(places),
        keys=tuple(_keys(first.config, second.config, (*removed, *added), reshaped)),
        modules=tuple(_modules(before, after)),
    )


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
    other_modules = {module for name in other for module in _modules_around(name)}
    names_by_module: dict[str, list[str]] = {}
    for name in tensors:
        modules = _modules_around(name)
        module = next((module for module in modules if module not in other_modules), None)
        if name not in other and module is not None:
            names_by_module.setdefault(module, []).append(name)
    for module, names in names_by_module.items():
        last = module.rpartition(".")[2]
        what = next((what for sign, what in _KNOWN_MODULES if sign.search(last)), "")
        count = sum(tensors[name].parameters for name in names)
        yield Lost(module=module, what=what, tensors=len(names), parameters=count)


def _modules_around(name: str) -> Iterator[str]:
    """Yield the modules that contain a tensor, the outermost first."""
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(1, len(parts)))


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


# --- config -------------------------------------------------------------------------------------


def _keys(
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    names: tuple[str, ...],
    reshaped: tuple[Changed, ...],
    path: str = "",
) -> Iterator[ConfigChange]:
    """Yield the config keys that differ; `names` are the names of removed and added tensors."""
    for key in dict.fromkeys((*before, *after)):
        old, new = before.get(key), after.get(key)
        if old == new or (not path and key in _NOT_COMPARED):
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _keys(old, new, names, reshaped, f"{path}{key}.")
        else:
            explains = _explained(key, (old, new), names, reshaped)
            yield ConfigChange(key=path + key, before=old, after=new, explains=explains)


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
