"""Two checkpoints beside each other: tensors, parameters by module, keys of the config."""

import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from math import prod
from typing import Any, NamedTuple

from msgspec import Struct

from auditor.bounded.json_text import parse_object
from auditor.checkpoint.snapshot import Snapshot
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.layouts import unknown_quantization, unpack_tensors
from auditor.layouts.declared import declaration
from auditor.messages import quoted
from auditor.reconciler.contents import contents
from auditor.tensors import StoredTensor, learned

Shape = tuple[int, ...]


class SideTensor(NamedTuple):
    """A tensor of the model, however it is stored."""

    shape: Shape | None  # None: only an index names it, or the packing does not say
    dtype: str | None
    file: str
    parameters: int


class Side(Struct, frozen=True, kw_only=True):
    """One of two checkpoints."""

    model: str
    tensors: Mapping[str, SideTensor]
    config: Mapping[str, Any]
    layout: str | None = None  # how its weights are packed
    files: frozenset[str] = frozenset()


def side_of(snapshot: Snapshot) -> Side:
    """SourceError where a checkpoint has nothing to compare."""
    found = contents(snapshot)
    if found.empty:
        raise SourceError(Reason.NO_WEIGHTS, f"{snapshot.model} has no weights to compare")
    if found.unread:
        names = ", ".join(sorted(item.file for item in found.unread)[:3])
        raise SourceError(Reason.UNREADABLE, f"{snapshot.model}: {names} cannot be read")
    try:
        config = (
            dict(parse_object(snapshot.config.content, snapshot.config.name))
            if snapshot.config
            else {}
        )
        packing = {snapshot.packing.name: snapshot.packing.content} if snapshot.packing else {}
        declared = declaration(config, packing)
        packer = unknown_quantization(declared) if declared else None
        if packer is not None:
            raise SourceError(Reason.UNKNOWN_LAYOUT, f"{snapshot.model} is packed by {packer}")
        # Two checkpoints are compared without an architecture, which would say packed shapes.
        unpacked = unpack_tensors(found.tensors, declared, lambda _name: None)
    except CheckpointError as error:
        raise SourceError(Reason.UNKNOWN_LAYOUT, f"{snapshot.model}: {error}") from None
    notes = {one.name for data in unpacked.quantization_data for one in data.tensors}
    packed = {one.stored.name for one in unpacked.tensors} | notes
    tensors = {one.name: _plain(one) for one in found.tensors if one.name not in packed}
    for piece in unpacked.tensors:
        count = prod(piece.shape) if piece.shape is not None else 0
        tensors[piece.name] = SideTensor(piece.shape, piece.dtype, piece.stored.file, count)
    return Side(
        model=snapshot.model,
        tensors=tensors,
        config=config,
        layout=unpacked.layout if unpacked.tensors else None,
        files=frozenset(one.file for one in found.tensors),
    )


def _plain(tensor: StoredTensor) -> SideTensor:
    count = tensor.elements or 0
    return SideTensor(tensor.shape, tensor.dtype, tensor.file, count if learned(tensor) else 0)


_NOT_COMPARED = frozenset({"_name_or_path", "transformers_version"})
_NAMED = 3  # of what was lost, in one line
_ENOUGH = 0.9  # of the tensors that are gone, for a prefix to be what became of them


class Lost(Struct, frozen=True, kw_only=True):
    """A module of which the other side has no tensor."""

    module: str
    what: str  # "a vision tower", "" where the name says all
    tensors: int
    parameters: int


class Changed(Struct, frozen=True, kw_only=True):
    """A tensor that both sides have, and what it is on each."""

    name: str
    before: str
    after: str


class ConfigChange(Struct, frozen=True, kw_only=True):
    """A key of the config, and the tensors that it explains."""

    key: str
    before: Any  # None: the side has no such key
    after: Any
    explains: int  # tensors that are gone, new or reshaped


class Comparison(Struct, frozen=True, kw_only=True):
    """All that differs; names are in the order of the sides' files."""

    models: tuple[str, str]
    layouts: tuple[str | None, str | None]
    renamed: tuple[str, str] | None = None  # the prefix that names had, and have
    lost: tuple[Lost, ...] = ()  # of the first side
    gained: tuple[Lost, ...] = ()
    removed: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    reshaped: tuple[Changed, ...] = ()
    retyped: tuple[Changed, ...] = ()
    moved: tuple[Changed, ...] = ()
    keys: tuple[ConfigChange, ...] = ()
    modules: tuple[tuple[str, int, int], ...] = ()  # module, parameters of each side

    @property
    def same(self) -> bool:
        tensors = (self.removed, self.added, self.reshaped, self.retyped, self.moved)
        return not (any(tensors) or self.keys or self.renamed)

    def __repr__(self) -> str:
        """Return one line of counts: a comparison names every tensor that differs."""
        said = [quoted(model) for model in self.models]
        said += [f"lost {one.what or quoted(one.module)}" for one in self.lost[:_NAMED]]
        counts = {
            "removed": self.removed,
            "added": self.added,
            "reshaped": self.reshaped,
            "re-typed": self.retyped,
            "moved": self.moved,
            "config keys": self.keys,
        }
        said += [f"{len(found):,} {what}" for what, found in counts.items() if found]
        return f"Comparison({', '.join([*said, *(['the same'] if self.same else [])])})"

    def to_dict(self) -> dict[str, Any]:
        """The object that `audit diff --format json` prints."""
        # By its name, and when somebody asks: a format knows comparisons, and not the reverse.
        shown = import_module("auditor.formats.comparison")
        return shown.as_tables_of_rows(self)  # type: ignore[no-any-return]


def compare(first: Side, second: Side) -> Comparison:
    """The second beside the first: what was lost on the way, and what came."""
    renamed = _renamed(first.tensors, second.tensors)
    before = _with_prefix(first.tensors, renamed) if renamed else first.tensors
    after = second.tensors
    removed = tuple(name for name in before if name not in after)
    added = tuple(name for name in after if name not in before)
    both = [name for name in before if name in after]
    reshaped = tuple(_reshaped(name, before[name], after[name]) for name in both)
    found_reshaped = tuple(one for one in reshaped if one)
    retyped = [_of(name, before[name].dtype, after[name].dtype) for name in both]
    shared = first.files & second.files
    moved = [
        _of(name, before[name].file, after[name].file)
        for name in both
        if {before[name].file, after[name].file} <= shared
    ]
    return Comparison(
        models=(first.model, second.model),
        layouts=(first.layout, second.layout),
        renamed=renamed,
        lost=tuple(_lost(before, after)),
        gained=tuple(_lost(after, before)),
        removed=removed,
        added=added,
        reshaped=found_reshaped,
        retyped=tuple(one for one in retyped if one),
        moved=tuple(one for one in moved if one),
        keys=tuple(_keys(first.config, second.config, (*removed, *added), found_reshaped)),
        modules=tuple(_modules(before, after)),
    )


def _of(name: str, before: object, after: object) -> Changed | None:
    if before == after or before is None or after is None:
        return None
    return Changed(name=name, before=str(before), after=str(after))


def _reshaped(name: str, before: SideTensor, after: SideTensor) -> Changed | None:
    if before.shape is None or after.shape is None or before.shape == after.shape:
        return None
    return Changed(name=name, before=_shape(before.shape), after=_shape(after.shape))


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a number"


# --- names --------------------------------------------------------------------------------------


def _renamed(
    before: Mapping[str, SideTensor], after: Mapping[str, SideTensor]
) -> tuple[str, str] | None:
    """The prefix that all names lost or got: `model.` before `bert.encoder...`."""
    gone = [name for name in before if name not in after]
    new = [name for name in after if name not in before]
    if not gone or not new:
        return None
    for had, has in _prefixes(gone, new):
        fitting = sum(name.startswith(had) and f"{has}{name[len(had) :]}" in after for name in gone)
        if fitting >= _ENOUGH * len(gone):
            return had, has
    return None


def _beginning(longer: str, shorter: str) -> str:
    return longer[: len(longer) - len(shorter)]


def _prefixes(gone: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    """A prefix that was put before names, or taken from them."""
    for one in gone[:3]:
        for other in new:
            if other.endswith(f".{one}"):
                yield "", _beginning(other, one)
            elif one.endswith(f".{other}"):
                yield _beginning(one, other), ""


def _with_prefix(
    tensors: Mapping[str, SideTensor], renamed: tuple[str, str]
) -> dict[str, SideTensor]:
    had, has = renamed
    return {
        f"{has}{name[len(had) :]}" if name.startswith(had) else name: tensor
        for name, tensor in tensors.items()
    }


# --- modules ------------------------------------------------------------------------------------

_PARTS = (
    (re.compile(r"vision|visual|image"), "the vision tower"),
    (re.compile(r"audio|speech"), "the audio tower"),
    (re.compile(r"mtp|nextn|eagle"), "layers that predict further tokens"),
    (re.compile(r"lm_head|^cls$|classifier|^score$|qa_outputs|embed_out"), "the head"),
    (re.compile(r"pooler"), "the pooler"),
    (re.compile(r"embed|^wte$|^wpe$"), "embeddings"),
    (re.compile(r"lora_|adapter"), "an adapter"),
    (re.compile(r"\.\d+$"), "a layer"),
    (re.compile(r"norm|ln_"), "a norm"),
)


def _lost(tensors: Mapping[str, SideTensor], other: Mapping[str, SideTensor]) -> Iterator[Lost]:
    """The largest modules of which the other side has nothing."""
    there = {prefix for name in other for prefix in _around(name)}
    found: dict[str, list[str]] = {}
    for name in tensors:
        if name in other:
            continue
        module = next((prefix for prefix in _around(name) if prefix not in there), None)
        if module is not None:
            found.setdefault(module, []).append(name)
    for module, names in found.items():
        last = module.rpartition(".")[2]
        texts = (last, f".{last}")
        what = next((what for sign, what in _PARTS if any(map(sign.search, texts))), "")
        count = sum(tensors[name].parameters for name in names)
        yield Lost(module=module, what=what, tensors=len(names), parameters=count)


def _around(name: str) -> Iterator[str]:
    """The modules around a tensor, the outermost first."""
    parts = name.split(".")
    for length in range(1, len(parts)):
        yield ".".join(parts[:length])


def _modules(
    before: Mapping[str, SideTensor], after: Mapping[str, SideTensor]
) -> Iterator[tuple[str, int, int]]:
    """Parameters two modules deep, side by side, and of the whole."""
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
    for key in dict.fromkeys((*before, *after)):
        was, now = before.get(key), after.get(key)
        if was == now or (not path and key in _NOT_COMPARED):
            continue
        if isinstance(was, Mapping) and isinstance(now, Mapping):
            yield from _keys(was, now, names, reshaped, f"{path}{key}.")
            continue
        explains = _explained(key, was, now, names, reshaped)
        yield ConfigChange(key=path + key, before=was, after=now, explains=explains)


def _explained(
    key: str, was: Any, now: Any, names: tuple[str, ...], reshaped: tuple[Changed, ...]
) -> int:
    """How many tensors differ as the key does: an axis of its value, or a layer beyond it."""
    if type(was) is not int or type(now) is not int:
        return 0
    if "layer" in key:
        numbers = (re.search(r"\.(\d{1,6})\.", name) for name in names)
        few, many = sorted((was, now))
        return sum(found is not None and few <= int(found[1]) < many for found in numbers)
    axes = ((one.before.split(" x "), one.after.split(" x ")) for one in reshaped)
    pair = (str(was), str(now))
    return sum(pair in zip(first, second, strict=False) for first, second in axes)
