"""The result of a packed layout: the model's tensors, quantization data, and faults.

A layout is a pure function `unpack(stored, declared, implied) -> Unpacked`. It reads names, dtypes
and shapes, never values. A tensor of the model inside a stored tensor is a piece: one stored tensor
may contain several. A stored tensor that the result does not mention is plain, one tensor of the
model.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from itertools import chain, repeat
from math import prod
from operator import itemgetter
from sys import intern
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from auditor.tensors import StoredTensor

Shape = tuple[int, ...]
Members = Mapping[str, StoredTensor]  # the tensors of a module, by the last segment of their names

# Returns the architecture's shape (out, in) under a name; None if it has no such tensor. Layouts
# need it if their packed shape does not show it (bitsandbytes stores 4-bit weights as one column).
Implied = Callable[[str], Shape | None]


StatedSettings = dict[str, Any]  # settings of a config that declare how tensors are packed


class Declared(Struct, frozen=True, kw_only=True):
    """The layout that a config declares; its settings are untrusted."""

    method: str  # quant_method in lower case; "mlx" if a config has MLX's own key
    settings: Mapping[str, Any]
    where: str  # "quantization_config of config.json", for messages


class LogicalTensor(NamedTuple):
    """A tensor of the model inside a stored tensor, which may contain several of them."""

    stored: StoredTensor  # the tensor in the file
    name: str  # the name in an unpacked checkpoint
    shape: Shape | None  # None if only an index names the stored tensor
    dtype: str  # the dtype of a packed number: "INT4", "NF4", "F8_E4M3", "Q4_K"

    def is_whole(self) -> bool:
        """Whether the stored tensor is this tensor and contains no other."""
        stored, name, shape, dtype = self
        return stored[:3] == (name, dtype, shape)


class Notes(NamedTuple):
    """Companions of packed tensors, with one description: scales, zero points, absmax."""

    tensors: tuple[StoredTensor, ...]
    reason: str  # a description in one line: "scales, one for each 128 inputs of an output"


class PackingFault(NamedTuple):
    """Packed tensors that contradict the layout, the config or the architecture."""

    tensors: tuple[StoredTensor, ...]
    reason: str  # with the arithmetic
    lacks: bool = False  # whether an unread file may contain what is missing: then it is no fault


class WrittenTensor(NamedTuple):
    """The tensor that a writer stores under a name, predicted from layout and architecture."""

    shape: Shape
    dtypes: tuple[str, ...]  # one dtype; for scales all dtypes that occur, the usual one first
    fewer: int = 0  # elements that may be missing: text in a tensor has no fixed length
    others: tuple[Shape, ...] = ()  # other shapes that are accepted


# The starts of the reasons of faults.
LACKS = "is stored without its "
NOT_LISTED = "is plain, but not by "
NOT_PLAIN = "is packed, but plain by "
ANOTHER_SCALE = "the weight has another scale"
UNDECLARED_AS = "packed as "

FLOATS = ("F16", "BF16", "F32")  # dtypes of scales that have the model's dtype
WIDE_FLOATS = ("F32", "BF16", "F16")  # dtypes of scales that usually have 32 bits

# Dtypes of pieces that are only cut out of a larger tensor, not packed, such as the experts of a
# layer; "" if only an index names the tensor.
UNPACKED = frozenset({"F64", "F32", "BF16", "F16", ""})


class Unpacked(Struct, frozen=True, kw_only=True):
    """The result of unpacking: pieces, unchanged tensors, quantization data and faults.

    A stored tensor that is in none of the first three is plain. A tensor that cannot be unpacked
    stays plain and has a fault.
    """

    layout: str  # a line for messages: "gptq, 4 bits, groups of 128, act-order"
    pieces: tuple[LogicalTensor, ...] = ()
    unchanged: tuple[StoredTensor, ...] = ()  # packed in the model's shape
    quantization_data: tuple[Notes, ...] = ()
    faults: tuple[PackingFault, ...] = ()

    @property
    def tensors(self) -> tuple[LogicalTensor, ...]:
        """The packed tensors of the model: the pieces and the unchanged tensors."""
        return (*self.pieces, *map(_as_piece, self.unchanged))


def _as_piece(tensor: StoredTensor) -> LogicalTensor:
    return LogicalTensor(tensor, tensor.name, tensor.shape, tensor.dtype or "")


PLAIN = Unpacked(layout="plain")  # nothing is packed
_NOTHING: Members = MappingProxyType({})
_DTYPE, _SHAPE = (itemgetter(StoredTensor._fields.index(name)) for name in ("dtype", "shape"))


class Stored(Struct, frozen=True, dict=True):
    """The stored tensors of a checkpoint, by module."""

    tensors: tuple[StoredTensor, ...]

    @cached_property
    def modules(self) -> Mapping[str, Members]:
        """The tensors by module: `a.q_proj` -> {"qweight": ...}; the first of equal names."""
        modules: dict[str, dict[str, StoredTensor]] = {}
        before, parts = None, {}
        for tensor in self.tensors:
            module, _, last = tensor[0].rpartition(".")
            if module != before:  # neighbours usually belong to one module
                before, parts = module, modules.setdefault(module, {})
            last = intern(last)  # one string for all modules
            if last not in parts:
                parts[last] = tensor
        return modules

    def forget_modules(self) -> None:
        """Free the cache of `modules`, 300 bytes a module; the next use fills the cache again."""
        self.__dict__.pop("modules", None)

    def members(self, module: str) -> Members:
        """Return the tensors of one module; empty if nothing is stored below its name."""
        return self.modules.get(module, _NOTHING)


class Layout(Struct, frozen=True, kw_only=True):
    """One quantization format's functions, from a `LayoutTable` or from a module of its own."""

    name: str  # the name in messages
    methods: tuple[str, ...]  # the values of quant_method (Declared.method) that declare it
    recognises: Callable[[Stored], bool]  # recognises the layout by marks that no other layout has
    unpack: Callable[[Stored, Declared | None, Implied], Unpacked]
    # Whether a declaration names a mode with plain weights in the file, which loading packs.
    stores_plain: Callable[[Declared], bool] = lambda _declared: False
    # Returns the packing that a declaration names, if the layout does not read that packing.
    unread: Callable[[Declared], str | None] = lambda _declared: None
    # Whether its writers declare the layout in the config; if not, a declaration is not required.
    declares: bool = True
    # The inverse of `unpack`: the tensors under the names that it packs and those of their scales,
    # by the architecture's shapes. The size of a name that is left out is unknown.
    writes: Callable[[Stored, Declared | None, Implied], Mapping[str, WrittenTensor]] = (
        lambda _stored, _declared, _implied: MappingProxyType({})
    )
    # The settings that declare the stored tensors, by the architecture's shapes.
    stated: Callable[[Stored, Implied], list[StatedSettings]] = lambda _stored, _implied: []


class HiddenContent(NamedTuple):
    """The predicted content of a stored tensor whose header was not read."""

    tensors: tuple[str, ...]  # tensors of the model; () for quantization data
    packed: bool  # whether its bytes are not those of its pieces; true for quantization data


class ReadAndHidden(NamedTuple):
    """The tensors of files that were read, and the predicted contents of all other tensors."""

    read: Unpacked
    behind: Mapping[str, HiddenContent]  # by stored name


def split_off_unread(
    unpacked: Unpacked, unread: Collection[StoredTensor], *, holds_unknown: bool = False
) -> ReadAndHidden:
    """Separate the tensors of files that could not be read from tensors of files that were read.

    All were unpacked together because a weight may be in one file and its scales in another.
    `holds_unknown` means that some files contain tensors whose names are not known.
    """
    if holds_unknown:
        faults = tuple(fault for fault in unpacked.faults if not fault.lacks)
        unpacked = unpacked if unpacked is PLAIN else replace(unpacked, faults=faults)
    hidden = {(tensor.name, tensor.file) for tensor in unread}
    if unpacked is PLAIN or not hidden:
        return ReadAndHidden(unpacked, MappingProxyType({}))
    content_by_name: dict[str, HiddenContent] = {}
    for piece in unpacked.tensors:
        if _place(piece.stored) in hidden:
            before = content_by_name.get(piece.stored.name, HiddenContent((), packed=False))
            inside = before.packed or piece.dtype not in UNPACKED
            content_by_name[piece.stored.name] = HiddenContent(
                (*before.tensors, piece.name), inside
            )
    notes: list[Notes] = []
    for group in unpacked.quantization_data:
        hidden_names = [tensor.name for tensor in group.tensors if _place(tensor) in hidden]
        content_by_name.update(dict.fromkeys(hidden_names, HiddenContent((), packed=True)))
        own = tuple(tensor for tensor in group.tensors if _place(tensor) not in hidden)
        notes += [group._replace(tensors=own)] if own else []
    read = replace(
        unpacked,
        pieces=tuple(piece for piece in unpacked.pieces if _place(piece.stored) not in hidden),
        unchanged=tuple(tensor for tensor in unpacked.unchanged if _place(tensor) not in hidden),
        quantization_data=tuple(notes),
    )
    return ReadAndHidden(read, MappingProxyType(content_by_name))


def _place(tensor: StoredTensor) -> tuple[str, str]:
    return tensor.name, tensor.file


def tensor_name(module: str, last: str = "weight") -> str:
    """Return the full name of a module's tensor `last`; the module "" is the model itself."""
    return f"{module}.{last}" if module else last


def as_stored_tensor(piece: LogicalTensor) -> StoredTensor:
    """Return the piece as a StoredTensor in the model's shape, under its stored name."""
    stored = piece.stored
    count = None if piece.shape is None else prod(piece.shape)
    return StoredTensor(stored.name, piece.dtype, piece.shape, count, stored.file, stored.span)


class PackingLedger(Struct):
    """A collector of a layout's results; faults with equal reasons become one finding."""

    tensors: list[LogicalTensor] = field(default_factory=list)
    unchanged: list[StoredTensor] = field(default_factory=list)  # packed in the model's shape
    notes: dict[str, list[StoredTensor]] = field(default_factory=dict)
    faults: dict[str, list[StoredTensor]] = field(default_factory=dict)
    lacking: set[str] = field(default_factory=set)

    def note(self, reason: str, *tensors: StoredTensor) -> None:
        self.notes.setdefault(reason, []).extend(tensors)

    def fault(self, reason: str, *tensors: StoredTensor) -> None:
        self.faults.setdefault(reason, []).extend(tensors)

    def lack(self, reason: str, *tensors: StoredTensor) -> None:
        """Record a fault that is dropped if an unread file may contain the missing tensors."""
        self.lacking.add(reason)
        self.fault(reason, *tensors)

    def unpack_alike(
        self,
        stored: Stored,
        unpack: Callable[[Stored, "PackingLedger"], object],
        settings: Callable[[str], object],
    ) -> None:
        """Call `unpack` for one of identical modules at a time; record the results for all of them.

        Modules are identical if their members have equal names, dtypes and shapes, and their
        settings are equal: the layers of a model, and their experts. The result of `unpack` may
        depend only on these, and its reasons do not name the module.
        """
        modules = stored.modules
        kinds: dict[tuple[object, ...], list[str]] = {}
        for module, parts in modules.items():
            members = parts.values()
            kind = (settings(module), *parts, *map(_DTYPE, members), *map(_SHAPE, members))
            kinds.setdefault(kind, []).append(module)
        for names in kinds.values():
            once = PackingLedger()
            unpack(Stored(tuple(modules[names[0]].values())), once)
            self._add(once, names, [modules[name] for name in names])
        stored.forget_modules()

    def _add(self, once: "PackingLedger", modules: list[str], alike: list[Members]) -> None:
        """Record the results of the first module for all identical modules."""
        last_of = {tensor: last for last, tensor in alike[0].items()}

        def in_all(tensor: StoredTensor) -> list[StoredTensor]:
            last = last_of[tensor]
            return [parts[last] for parts in alike]

        for piece in once.tensors:
            tensors, ending = in_all(piece.stored), piece.name[len(modules[0]) :]
            if piece.is_whole():
                self.unchanged += tensors
                continue
            names: Iterable[str] = (f"{module}{ending}" for module in modules)
            if piece.name == piece.stored.name:
                names = (tensor.name for tensor in tensors)
            pieces = zip(tensors, names, repeat(piece.shape), repeat(piece.dtype))
            self.tensors += map(tuple.__new__, repeat(LogicalTensor), pieces)
        for reason, tensors in once.notes.items():
            self.note(reason, *chain.from_iterable(map(in_all, tensors)))
        for reason, tensors in once.faults.items():
            self.fault(reason, *chain.from_iterable(map(in_all, tensors)))
        self.lacking |= once.lacking

    def close(self, layout: str) -> Unpacked:
        """Return what was recorded; a tensor with a piece is left out of the quantization data."""
        pieces: list[LogicalTensor] = []
        unchanged = list(self.unchanged)
        for piece in self.tensors:
            if piece.is_whole():
                unchanged.append(piece.stored)
            else:
                pieces.append(piece)
        taken = {*map(id, unchanged), *(id(piece.stored) for piece in pieces)}
        notes: list[Notes] = []
        for reason, stored in self.notes.items():
            own = dict(zip(map(id, stored), stored, strict=True))
            if not taken.isdisjoint(own):
                own = {key: tensor for key, tensor in own.items() if key not in taken}
            taken.update(own)
            if own:
                notes.append(Notes(tuple(own.values()), reason))
        faults = (
            PackingFault(tuple(dict.fromkeys(stored)), why, lacks=why in self.lacking)
            for why, stored in self.faults.items()
        )
        return Unpacked(
            layout=layout,
            pieces=tuple(pieces),
            unchanged=tuple(unchanged),
            quantization_data=tuple(notes),
            faults=tuple(faults),
        )
