"""What a packed layout makes of stored tensors: pieces of the model, quantization data, and faults.

A layout is a pure function `unpack(stored, declared, implied) -> Unpacked`. It looks at names,
dtypes and shapes, never at values. What it does not mention is plain: one stored tensor is one
tensor of the model.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
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
Members = Mapping[str, StoredTensor]  # of a module, by the last part of their names

# The shape (out, in) that the architecture has under a name; None: it has no such tensor. For
# layouts whose packed shape does not say it (bitsandbytes stores 4-bit weights as one column).
Implied = Callable[[str], Shape | None]


class Declared(Struct, frozen=True, kw_only=True):
    """What a config says of the layout. The settings are as the checkpoint has them: untrusted."""

    method: str  # quant_method in lower case; "mlx" where a config has MLX's own key
    settings: Mapping[str, Any]
    where: str  # "quantization_config of config.json", for messages


class LogicalTensor(NamedTuple):
    """A tensor of the model inside a stored one; several pieces may share a stored tensor."""

    stored: StoredTensor  # as the file has it
    name: str  # as an unpacked checkpoint names it
    shape: Shape | None  # likewise; None: only an index names the stored tensor
    dtype: str  # of a number inside: "INT4", "NF4", "F8_E4M3", "Q4_K"

    def is_whole(self) -> bool:
        """Whether the stored tensor is this very one, and not only holds it."""
        stored, name, shape, dtype = self
        return stored[:3] == (name, dtype, shape)


class Notes(NamedTuple):
    """Tensors that serve the packed ones: scales, zero points, g_idx, absmax."""

    tensors: tuple[StoredTensor, ...]
    reason: str  # what they are, in one line: "scales, one for each 128 inputs of an output"


class PackingFault(NamedTuple):
    """Packed tensors that cannot be what the layout, the config or the architecture say."""

    tensors: tuple[StoredTensor, ...]
    reason: str  # with the arithmetic
    lacks: bool = False  # it is one only where all files were read: another may hold what it lacks


class WrittenTensor(NamedTuple):
    """What a writer stores under a name, as the layout and the architecture's shapes imply it."""

    shape: Shape
    dtypes: tuple[str, ...]  # one; of scales those that occur, the usual one first
    fewer: int = 0  # elements that it may have less: text in a tensor has no fixed length


FLOATS = ("F16", "BF16", "F32")  # dtypes of scales that are as the model's

# Dtypes of pieces that are cut out of a larger tensor, experts of their layer's, and no more than
# that; "" of those that only an index names.
UNPACKED = frozenset({"F64", "F32", "BF16", "F16", ""})


class Unpacked(Struct, frozen=True, kw_only=True):
    """Each stored tensor is in pieces, whole, in quantization_data, or in none: then it is plain.

    Faults may be about any of them. A stored tensor that cannot be unpacked at all is left plain
    and has a fault.
    """

    layout: str  # in one line, for people: "gptq, 4 bits, groups of 128, act-order"
    pieces: tuple[LogicalTensor, ...] = ()
    whole: tuple[StoredTensor, ...] = ()  # each its only piece, as it is: a weight of 8 bits
    quantization_data: tuple[Notes, ...] = ()
    faults: tuple[PackingFault, ...] = ()

    @property
    def tensors(self) -> tuple[LogicalTensor, ...]:
        """What is packed: the pieces, and what is whole."""
        return (*self.pieces, *map(_as_piece, self.whole))


def _as_piece(tensor: StoredTensor) -> LogicalTensor:
    return LogicalTensor(tensor, tensor.name, tensor.shape, tensor.dtype or "")


PLAIN = Unpacked(layout="plain")  # nothing is packed
_NOTHING: Members = MappingProxyType({})
_DTYPE, _SHAPE = (itemgetter(StoredTensor._fields.index(name)) for name in ("dtype", "shape"))


class Stored(Struct, frozen=True, dict=True):
    """All stored tensors of a checkpoint, by module."""

    tensors: tuple[StoredTensor, ...]

    @cached_property
    def modules(self) -> Mapping[str, Members]:
        """`a.q_proj` -> {"qweight": ..., "scales": ...}; of one name in two shards, the first."""
        found: dict[str, dict[str, StoredTensor]] = {}
        before, parts = None, {}
        for tensor in self.tensors:
            module, _, last = tensor[0].rpartition(".")
            if module != before:  # neighbours are mostly of one module
                before, parts = module, found.setdefault(module, {})
            last = intern(last)  # one string for all modules
            if last not in parts:
                parts[last] = tensor
        return found

    def forget_modules(self) -> None:
        """Let go of what was grouped, 300 bytes a module; `modules` groups anew."""
        self.__dict__.pop("modules", None)

    def members(self, module: str) -> Members:
        """Those of one module; none where nothing is stored below that name."""
        return self.modules.get(module, _NOTHING)


class Layout(Struct, frozen=True, kw_only=True):
    """One way of storing weights.

    The module of a layout has functions of the names of these fields: `recognises` and `unpack`
    always, `stores_plain`, `unread` and `writes` where it needs them. No other module has.
    """

    name: str  # for people
    methods: tuple[str, ...]  # values of quant_method (Declared.method) that stand for it
    recognises: Callable[[Stored], bool]  # by marks that no other layout leaves
    unpack: Callable[[Stored, Declared | None, Implied], Unpacked]
    # Whether a declaration asks for a mode that keeps plain weights in the file, packed on loading.
    stores_plain: Callable[[Declared], bool] = lambda _declared: False
    # What a declaration says that its weights are packed as, where that is not read here.
    unread: Callable[[Declared], str | None] = lambda _declared: None
    # Whether its writer says so in the config; where it does not, no declaration is required.
    declares: bool = True
    # What stands under the names that it packs and those that serve them, of shapes that the
    # architecture has: the inverse of `unpack`. A name that is left out: its size is not known.
    writes: Callable[[Stored, Declared | None, Implied], Mapping[str, WrittenTensor]] = (
        lambda _stored, _declared, _implied: MappingProxyType({})
    )


class HiddenContent(NamedTuple):
    """What a name stands for whose tensor cannot be seen."""

    tensors: tuple[str, ...]  # tensors of the model; () of quantization data
    packed: bool  # or served: its bytes are not those of its pieces


class ReadAndHidden(NamedTuple):
    """What is packed of the tensors with a header, and what of those without one is a piece."""

    read: Unpacked
    behind: Mapping[str, HiddenContent]  # by stored name


def split_off_unread(
    unpacked: Unpacked, unread: Collection[StoredTensor], *, holds_unknown: bool = False
) -> ReadAndHidden:
    """The same without the tensors of files that could not be read, and what these would hold.

    They were unpacked together, for a weight may be in one file and its scales in another.
    `holds_unknown` means that some files hold tensors that are not known.
    """
    if holds_unknown:
        faults = tuple(fault for fault in unpacked.faults if not fault.lacks)
        unpacked = unpacked if unpacked is PLAIN else replace(unpacked, faults=faults)
    hidden = {(tensor.name, tensor.file) for tensor in unread}
    if unpacked is PLAIN or not hidden:
        return ReadAndHidden(unpacked, MappingProxyType({}))
    behind: dict[str, HiddenContent] = {}
    for piece in unpacked.tensors:
        if _place(piece.stored) in hidden:
            before = behind.get(piece.stored.name, HiddenContent((), packed=False))
            inside = before.packed or piece.dtype not in UNPACKED
            behind[piece.stored.name] = HiddenContent((*before.tensors, piece.name), inside)
    notes: list[Notes] = []
    for one in unpacked.quantization_data:
        serving = [tensor.name for tensor in one.tensors if _place(tensor) in hidden]
        behind.update(dict.fromkeys(serving, HiddenContent((), packed=True)))
        own = tuple(tensor for tensor in one.tensors if _place(tensor) not in hidden)
        notes += [one._replace(tensors=own)] if own else []
    read = replace(
        unpacked,
        pieces=tuple(one for one in unpacked.pieces if _place(one.stored) not in hidden),
        whole=tuple(one for one in unpacked.whole if _place(one) not in hidden),
        quantization_data=tuple(notes),
    )
    return ReadAndHidden(read, MappingProxyType(behind))


def _place(tensor: StoredTensor) -> tuple[str, str]:
    return tensor.name, tensor.file


def tensor_name(module: str, last: str = "weight") -> str:
    """The name of what a module calls `last`; the module "" is the model itself."""
    return f"{module}.{last}" if module else last


def as_stored_tensor(piece: LogicalTensor) -> StoredTensor:
    """The piece as a stored tensor of the model's shape, under the name that the file has."""
    stored = piece.stored
    count = None if piece.shape is None else prod(piece.shape)
    return StoredTensor(stored.name, piece.dtype, piece.shape, count, stored.file, stored.span)


class PackingLedger(Struct):
    """Collects what a layout finds, reasons first: equal reasons become one finding."""

    tensors: list[LogicalTensor] = field(default_factory=list)
    whole: list[StoredTensor] = field(default_factory=list)  # of modules that are alike
    notes: dict[str, list[StoredTensor]] = field(default_factory=dict)
    faults: dict[str, list[StoredTensor]] = field(default_factory=dict)
    lacking: set[str] = field(default_factory=set)

    def note(self, reason: str, *tensors: StoredTensor) -> None:
        self.notes.setdefault(reason, []).extend(tensors)

    @property
    def booked(self) -> Iterator[LogicalTensor]:
        """Every packed tensor that the layout has found so far."""
        return chain(self.tensors, map(_as_piece, self.whole))

    def fault(self, reason: str, *tensors: StoredTensor) -> None:
        self.faults.setdefault(reason, []).extend(tensors)

    def lack(self, reason: str, *tensors: StoredTensor) -> None:
        """A fault, unless a file that could not be read holds what is not there."""
        self.lacking.add(reason)
        self.fault(reason, *tensors)

    def book_alike(
        self,
        stored: Stored,
        book: Callable[[str, Members, "PackingLedger"], None],
        differs: Callable[[str], object] | None = None,
    ) -> None:
        """Have each module booked; of those that are alike only the first is looked at.

        Alike are modules whose members have the same names, dtypes and shapes: the layers of a
        model, and their experts. What `book` makes of one may depend on that alone, and on what
        `differs` says of the module's name; its reasons do not name the module.
        """
        modules = stored.modules
        kinds: dict[tuple[object, ...], list[str]] = {}
        for module, parts in modules.items():
            members = parts.values()
            kind: tuple[object, ...] = (*parts, *map(_DTYPE, members), *map(_SHAPE, members))
            if differs is not None:
                kind = (differs(module), *kind)
            kinds.setdefault(kind, []).append(module)
        for names in kinds.values():
            first, once = names[0], PackingLedger()
            book(first, modules[first], once)
            self._add(once, names, [modules[name] for name in names])
        stored.forget_modules()

    def _add(self, once: "PackingLedger", modules: list[str], alike: list[Members]) -> None:
        """What was booked of the first module, for all that are alike."""
        last_of = {tensor: last for last, tensor in alike[0].items()}

        def each(tensor: StoredTensor) -> list[StoredTensor]:
            last = last_of[tensor]
            return [parts[last] for parts in alike]

        for piece in once.tensors:
            found, rest = each(piece.stored), piece.name[len(modules[0]) :]
            if piece.is_whole():
                self.whole += found
                continue
            names: Iterable[str] = (f"{module}{rest}" for module in modules)
            if piece.name == piece.stored.name:
                names = (tensor.name for tensor in found)
            pieces = zip(found, names, repeat(piece.shape), repeat(piece.dtype))
            self.tensors += map(tuple.__new__, repeat(LogicalTensor), pieces)
        for reason, tensors in once.notes.items():
            self.note(reason, *chain.from_iterable(map(each, tensors)))
        for reason, tensors in once.faults.items():
            self.fault(reason, *chain.from_iterable(map(each, tensors)))
        self.lacking |= once.lacking

    def close(self, layout: str) -> Unpacked:
        """Each tensor is in the books once: one that holds a piece serves no other by its name."""
        pieces: list[LogicalTensor] = []
        whole = list(self.whole)
        for piece in self.tensors:
            if piece.is_whole():
                whole.append(piece.stored)
            else:
                pieces.append(piece)
        taken = {*map(id, whole), *(id(piece.stored) for piece in pieces)}
        notes: list[Notes] = []
        for reason, found in self.notes.items():
            own = dict(zip(map(id, found), found, strict=True))
            if not taken.isdisjoint(own):
                own = {key: tensor for key, tensor in own.items() if key not in taken}
            taken.update(own)
            if own:
                notes.append(Notes(tuple(own.values()), reason))
        faults = (
            PackingFault(tuple(dict.fromkeys(found)), why, lacks=why in self.lacking)
            for why, found in self.faults.items()
        )
        return Unpacked(
            layout=layout,
            pieces=tuple(pieces),
            whole=tuple(whole),
            quantization_data=tuple(notes),
            faults=tuple(faults),
        )
