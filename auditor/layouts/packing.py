"""What a packed layout makes of stored tensors: pieces of the model, bookkeeping, and faults.

A layout is a pure function `unpack(stored, declared, implied) -> Unpacked`. It looks at names,
dtypes and shapes, never at values. What it does not mention is plain: one stored tensor is one
tensor of the model.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

from auditor.tensors import StoredTensor

Shape = tuple[int, ...]
Members = Mapping[str, StoredTensor]  # of a module, by the last part of their names

# The shape (out, in) that the architecture has under a name; None: it has no such tensor. For
# layouts whose packed shape does not say it (bitsandbytes stores 4-bit weights as one column).
Implied = Callable[[str], Shape | None]


@dataclass(frozen=True, kw_only=True)
class Declared:
    """What a config says of the layout. The settings are as the checkpoint has them: untrusted."""

    method: str  # quant_method in lower case; "mlx" where a config has MLX's own key
    settings: Mapping[str, Any]
    where: str  # "quantization_config of config.json", for messages


class Piece(NamedTuple):
    """A tensor of the model inside a stored one; several pieces may share a stored tensor."""

    stored: StoredTensor  # as the file has it
    name: str  # as an unpacked checkpoint names it
    shape: Shape | None  # likewise; None: only an index names the stored tensor
    dtype: str  # of a number inside: "INT4", "NF4", "F8_E4M3", "Q4_K"


class Notes(NamedTuple):
    """Tensors that serve the packed ones: scales, zero points, g_idx, absmax."""

    tensors: tuple[StoredTensor, ...]
    reason: str  # what they are, in one line: "scales, one for each 128 inputs of an output"


class Fault(NamedTuple):
    """Packed tensors that cannot be what the layout, the config or the architecture say."""

    tensors: tuple[StoredTensor, ...]
    reason: str  # with the arithmetic


@dataclass(frozen=True, kw_only=True)
class Unpacked:
    """Each stored tensor is in pieces, in bookkeeping, or in neither: then it is plain.

    Faults may be about any of them. A stored tensor that cannot be unpacked at all is left plain
    and has a fault.
    """

    layout: str  # in one line, for people: "gptq, 4 bits, groups of 128, act-order"
    pieces: tuple[Piece, ...] = ()
    bookkeeping: tuple[Notes, ...] = ()
    faults: tuple[Fault, ...] = ()


PLAIN = Unpacked(layout="plain")  # nothing is packed
_NOTHING: Members = MappingProxyType({})


@dataclass(frozen=True)
class Stored:
    """All stored tensors of a checkpoint, by module."""

    tensors: tuple[StoredTensor, ...]

    @cached_property
    def modules(self) -> Mapping[str, Members]:
        """`a.q_proj` -> {"qweight": ..., "scales": ...}; of one name in two shards, the first."""
        found: dict[str, dict[str, StoredTensor]] = {}
        for tensor in self.tensors:
            module, _, last = tensor.name.rpartition(".")
            found.setdefault(module, {}).setdefault(last, tensor)
        return found

    def members(self, module: str) -> Members:
        """Those of one module; none where nothing is stored below that name."""
        return self.modules.get(module, _NOTHING)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One way of storing weights."""

    name: str  # for people
    methods: tuple[str, ...]  # values of quant_method (Declared.method) that stand for it
    recognises: Callable[[Stored], bool]  # by marks that no other layout leaves
    unpack: Callable[[Stored, Declared | None, Implied], Unpacked]
    # Whether a declaration asks for a mode that keeps plain weights in the file, packed on loading.
    stores_plain: Callable[[Declared], bool] = lambda _declared: False
    # What a declaration says that its weights are packed as, where that is not read here.
    unread: Callable[[Declared], str | None] = lambda _declared: None
    # Whether its writer says so in the config; where not, silence is no contradiction.
    declares: bool = True


def below(module: str, last: str = "weight") -> str:
    """The name of what a module calls `last`; the module "" is the model itself."""
    return f"{module}.{last}" if module else last


def presented(piece: Piece) -> StoredTensor:
    """The piece as a stored tensor of the model's shape, under the name that the file has."""
    stored = piece.stored
    count = None if piece.shape is None else prod(piece.shape)
    return StoredTensor(stored.name, piece.dtype, piece.shape, count, stored.file, stored.span)


@dataclass
class Ledger:
    """Collects what a layout finds, reasons first: equal reasons become one finding."""

    pieces: list[Piece] = field(default_factory=list)
    _notes: dict[str, list[StoredTensor]] = field(default_factory=dict)
    _faults: dict[str, list[StoredTensor]] = field(default_factory=dict)

    def note(self, reason: str, *tensors: StoredTensor) -> None:
        self._notes.setdefault(reason, []).extend(tensors)

    def fault(self, reason: str, *tensors: StoredTensor) -> None:
        self._faults.setdefault(reason, []).extend(tensors)

    def close(self, layout: str) -> Unpacked:
        """Each tensor is in the books once: one that holds a piece serves no other by its name."""
        taken = {piece.stored for piece in self.pieces}
        notes: list[Notes] = []
        for reason, found in self._notes.items():
            own: list[StoredTensor] = []
            for tensor in found:
                if tensor not in taken:
                    taken.add(tensor)
                    own.append(tensor)
            if own:
                notes.append(Notes(tuple(own), reason))
        faults = (Fault(tuple(dict.fromkeys(found)), why) for why, found in self._faults.items())
        return Unpacked(
            layout=layout,
            pieces=tuple(self.pieces),
            bookkeeping=tuple(notes),
            faults=tuple(faults),
        )
