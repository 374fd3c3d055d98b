"""The engine of packed layouts: from a layout's table it unpacks, checks and predicts tensors.

A `LayoutTable` declares one quantization method: the tensor with the packed numbers, its
companions, and two functions that read a module, one from the stored shapes and one from the
config. Both return a `Packing`: the tensors that a writer stores for a weight of the model's shape.
The engine compares these with the stored tensors, and returns them for tensors that only an index
names. A packed tensor with its companions is a bundle.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from itertools import islice
from math import prod
from types import MappingProxyType
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from auditor.layouts._scales import CACHE, Grain, note_kv_scales
from auditor.layouts._scheme import Scheme, report_contradictions
from auditor.layouts.fused import stacked_experts, unstack
from auditor.layouts.packing import (
    LACKS,
    WIDE_FLOATS,
    Declared,
    Implied,
    Layout,
    LogicalTensor,
    Members,
    PackingLedger,
    Shape,
    StatedSettings,
    Stored,
    Unpacked,
    WrittenTensor,
    tensor_name,
)
from auditor.messages import shape_text
from auditor.tensors import StoredTensor

Settings = TypeVar("Settings", bound=Hashable)

_LOOKED_AT = 64  # bundles whose settings are compared
_MOST_RETURNED = 2  # settings that are returned
# Linears of GPT-2 and similar models; a plain checkpoint stores their weights as (in, out).
CONV1D = frozenset({"c_attn", "c_fc", "c_proj", "q_attn"})


class Bundle(NamedTuple):
    """A packed tensor and its companions, under their names in the layout's table."""

    module: str  # the name that the config uses: "model.layers.0.mlp.up_proj"
    name: str  # the tensor's name in the model: "model.layers.0.mlp.up_proj.weight"
    parts: Members
    plain: StoredTensor | None = None  # the model's own tensor, which is renamed or transposed
    experts: tuple[str, ...] = ()  # the names in the model of the experts that it stacks
    faults: tuple[str, ...] = ()  # what the names of its tensors show


class Packing(Struct, frozen=True, kw_only=True):
    """One interpretation of a bundle: the weight's shape, and the tensors that a writer stores."""

    shape: Shape
    dtype: str  # the dtype of a packed number: "INT4"
    tensors: Mapping[str, WrittenTensor]
    words: str = ""  # the settings, for messages: "gptq in 4 bits"
    form: str = ""
    bits: int = 0
    group: int = 0  # inputs that share a scale
    grain: Grain | None = None  # the part of the weight that shares a scale
    doubts: tuple[str, ...] = ()  # declarations that the stored shapes contradict
    descriptions: Mapping[str, str] = MappingProxyType({})  # of companions, instead of the table's


class LayoutTable(Struct, Generic[Settings], frozen=True, kw_only=True):
    """The declaration of one quantization method, which the engine interprets."""

    name: str  # the name in messages
    recognises: Callable[[Stored], bool]  # recognises the layout by marks that no other layout has
    packed: str  # the tensor with the packed numbers: "qweight"
    dtypes: frozenset[str]  # the dtypes that it may have
    dtype: str  # the dtype of a packed number, if only an index names the packed tensor
    companions: Mapping[str, str]  # companion of the packed tensor -> its description
    methods: tuple[str, ...] = ()  # the values of quant_method that declare it; if empty, its name
    # Companions without which a bundle cannot be unpacked.
    needed: Callable[[Members, Settings, Packing | None], Iterable[str]]
    # Reads the config once and reports impossible settings; the result returns a module's settings.
    settings: Callable[[Declared | None, Stored, PackingLedger], Callable[[str], Settings]]
    # The possible packings of the stored shapes, the likeliest first. If none is possible: a text
    # on the needed shape, or None if unread files may have it. The last argument is the
    # architecture's shape.
    by_shapes: Callable[[Members, Settings, Shape | None], Iterable[Packing] | str | None]
    # The packing that the config implies for a weight of the architecture; None if unknown.
    by_config: Callable[[Members, Settings, Shape], Packing | None] = lambda *_: None
    # The config settings that declare such a bundle, the inverse of `settings`; None if unknown.
    stated: Callable[[Members, Packing], StatedSettings | None] = lambda *_: None
    # Describes the layout and its settings in messages; None if the packings' dtypes are enough.
    title: Callable[[Declared | None, Collection[Packing]], str] | None = None
    # Returns the scheme of the config, given the names of the packed modules; None if unknown.
    scheme: Callable[
        [Declared, Collection[str], Callable[[str], Settings], Stored], Scheme | None
    ] = lambda *_: None
    # Yields the bundles; None if each module is a bundle.
    bundles: Callable[[Stored, Callable[[str], Settings], Implied], Iterable[Bundle]] | None = None
    # Companions that may exist without a packed tensor -> their form; None if their size varies.
    may_be_alone: Mapping[str, WrittenTensor | None] = MappingProxyType({})
    unseen_dtype: Callable[[Members, Settings], str] | None = None  # computes `dtype`
    # Whether a module's tensors and settings decide alone, without the architecture. Identical
    # modules are then unpacked once: a model may have 45,000 experts.
    is_local: bool = False
    plain_by_name: bool = True  # whether a weight without a header may be a plain one
    has_caches: bool = False  # whether modules may have scales of a KV cache
    also_plain: frozenset[str] = frozenset()  # dtypes of plain weights that may have companions
    conv1d: bool = False  # whether a Conv1D is packed as a linear (out, in)
    loads: str = ""  # what loading looks for, in messages; if empty, the packed tensor
    declares: bool = True  # see Layout
    stores_plain: Callable[[Declared], bool] = lambda _declared: False
    unread: Callable[[Declared], str | None] = lambda _declared: None

    def layout(self) -> Layout:
        """The layout that interprets this table."""
        return Layout(
            name=self.name,
            methods=self.methods or (self.name,),
            recognises=self.recognises,
            unpack=lambda stored, declared, implied: _Engine(self, declared, implied).unpack(
                stored
            ),
            writes=lambda stored, declared, implied: _Engine(self, declared, implied).writes(
                stored
            ),
            stated=lambda stored, implied: _Engine(self, None, implied).stated(stored),
            stores_plain=self.stores_plain,
            unread=self.unread,
            declares=self.declares,
        )


def shape_of_numbers(
    numbers: int, what: str, expected: Shape | None
) -> tuple[Shape, tuple[str, ...]]:
    """Return the architecture's shape if it has `numbers` elements; else (numbers,), with a doubt.

    A doubt is a sentence on why the shape may be wrong.
    """
    if expected is None:
        return (numbers,), ()
    if prod(expected) == numbers:
        return expected, ()
    doubt = f"{what} holds {numbers:,} numbers, expected {expected} = {prod(expected):,}"
    return (numbers,), (doubt,)


def if_elements(
    parts: Members, last: str, fits: Callable[[int], bool], usual: Shape = (1,)
) -> WrittenTensor:
    """Return the expected scale `last`, whose number of elements has to fit, in any shape."""
    shape = parts[last].shape if last in parts else None
    return WrittenTensor(shape if shape is not None and fits(prod(shape)) else usual, WIDE_FLOATS)


def any_module(mark: Callable[[Members], bool]) -> Callable[[Stored], bool]:
    """Return a function that checks whether `mark` is true of any stored module."""
    return lambda stored: any(map(mark, stored.modules.values()))


def constant_settings(
    read: Callable[[Declared | None, PackingLedger], Settings],
) -> Callable[[Declared | None, Stored, PackingLedger], Callable[[str], Settings]]:
    """Return a settings reader for a layout whose modules all share one set of settings."""

    def settings(
        declared: Declared | None, _stored: Stored, ledger: PackingLedger
    ) -> Callable[[str], Settings]:
        shared = read(declared, ledger)
        return lambda _module: shared

    return settings


class _Engine(Generic[Settings]):
    """The unpacking of one checkpoint; bundles with equal shapes and settings are read once."""

    def __init__(
        self, table: LayoutTable[Settings], declared: Declared | None, implied: Implied
    ) -> None:
        self._table, self._declared, self._implied = table, declared, implied
        self._readings: dict[object, Packing | str | None] = {}

    def unpack(self, stored: Stored) -> Unpacked:
        """Unpack each bundle, and report tensors that contradict the table or the config."""
        table, ledger = self._table, PackingLedger()
        settings = table.settings(self._declared, stored, ledger)
        if table.is_local:
            ledger.unpack_alike(
                stored, lambda one, once: self._unpack_bundles(one, settings, once), settings
            )
            weights = {one.name.removesuffix(".weight"): one for one in ledger.unchanged}
            weights |= {one.name.removesuffix(".weight"): one.stored for one in ledger.tensors}
        else:
            weights = self._unpack_bundles(stored, settings, ledger)
        if self._declared is not None:
            report_contradictions(
                stored,
                weights,
                table.scheme(self._declared, weights, settings, stored),
                ledger,
                loads=table.loads or f"its {table.packed}",
                by_name=table.plain_by_name,
            )
        packings = [one for one in self._readings.values() if isinstance(one, Packing)]
        if table.title is not None:
            return ledger.close(table.title(self._declared, packings))
        dtypes = {packing.dtype.lower() for packing in packings}
        return ledger.close(", ".join((table.name, *sorted(dtypes))))

    def _unpack_bundles(
        self, stored: Stored, settings: Callable[[str], Settings], ledger: PackingLedger
    ) -> dict[str, StoredTensor]:
        """Unpack the bundles of some modules; return their packed tensors by module."""
        table, weights = self._table, dict[str, StoredTensor]()
        for parts in stored.modules.values() if table.has_caches else ():
            note_kv_scales(parts, ledger)
        for bundle in self._bundles(stored, settings):
            if bundle.plain is not None:
                one = bundle.plain
                self._add(bundle, one.shape, one.dtype or "F32", ledger)
            elif table.packed in bundle.parts:
                weights[bundle.module] = bundle.parts[table.packed]
                self._unpack(bundle, settings(bundle.module), ledger)
            else:
                self._report_orphans(bundle.parts, ledger)
        return weights

    def writes(self, stored: Stored) -> dict[str, WrittenTensor]:
        """Return the tensors that config and architecture imply, by stored name."""
        table, written = self._table, dict[str, WrittenTensor]()
        settings = table.settings(self._declared, stored, PackingLedger())
        own = {table.packed, *table.companions}
        for bundle in self._bundles(stored, settings):
            shape, parts = self._expected(bundle), bundle.parts
            is_alone = not parts.keys().isdisjoint(table.may_be_alone)
            if shape is None or not (is_alone or table.packed in parts):
                continue
            shape = shape[::-1] if self._is_conv1d(bundle.module) else shape
            packing = table.by_config(bundle.parts, settings(bundle.module), shape)
            tensors = packing.tensors if packing else {}
            written |= {
                one.name: tensors[part]
                for part, one in bundle.parts.items()
                if part in tensors and (part in own or self._implied(one.name) is None)
            }
        for parts in stored.modules.values() if table.has_caches else ():
            scales = (parts[key].name for key in CACHE & parts.keys())
            written |= dict.fromkeys(scales, WrittenTensor((), WIDE_FLOATS))
        return written

    def stated(self, stored: Stored) -> list[StatedSettings]:
        """Return the settings that declare most of the stored bundles, the most frequent first.

        A bundle with one group gives no upper bound of the group size; other bundles may.
        """
        table = self._table
        settings = table.settings(None, stored, PackingLedger())
        equal_settings: dict[str, list[StatedSettings]] = {}
        packed = (one for one in self._bundles(stored, settings) if table.packed in one.parts)
        for bundle in islice(packed, _LOOKED_AT):
            weight, reading = bundle.parts[table.packed], None
            if weight.shape is not None and weight.dtype in table.dtypes:
                reading = self._reading(bundle, settings(bundle.module))
            if not isinstance(reading, Packing) or any(self._misfits(reading, bundle.parts)):
                continue
            found = table.stated(bundle.parts, reading)
            if found is not None:
                equal_settings.setdefault(str(found), []).append(found)
        by_frequency = sorted(equal_settings.values(), key=len, reverse=True)
        return [same[0] for same in by_frequency[:_MOST_RETURNED]]

    def _bundles(self, stored: Stored, settings: Callable[[str], Settings]) -> Iterator[Bundle]:
        """Yield the table's bundles, by default modules with a packed tensor or a companion."""
        table = self._table
        if table.bundles is not None:
            yield from table.bundles(stored, settings, self._implied)
            return
        for module, members in stored.modules.items():
            weight = members.get(table.packed)
            has_packed = weight is not None and (
                table.packed != "weight" or weight.dtype in table.dtypes
            )
            if has_packed or not table.companions.keys().isdisjoint(members):
                yield Bundle(module, tensor_name(module), members)

    def _expected(self, bundle: Bundle) -> Shape | None:
        """Return the architecture's shape of a bundle, which may be that of stacked experts."""
        experts = stacked_experts(bundle.name, self._implied)
        shape = experts.shape if experts else self._implied(bundle.name)
        return (len(bundle.experts), *shape) if bundle.experts and shape is not None else shape

    def _is_conv1d(self, module: str) -> bool:
        return self._table.conv1d and module.rpartition(".")[2] in CONV1D

    # --- one bundle -------------------------------------------------------------------------------

    def _report_orphans(self, parts: Members, ledger: PackingLedger) -> None:
        """Report companions without a packed tensor, unless the architecture has their names."""
        for part in self._table.companions:
            if part in parts and self._implied(parts[part].name) is None:
                ledger.note(self._table.companions[part], parts[part])
                if part not in self._table.may_be_alone:
                    ledger.lack(f"{LACKS}{self._table.packed}", parts[part])
                alone = self._table.may_be_alone.get(part)
                if alone is not None and not self._fits(part, parts[part], alone):
                    ledger.fault(_misfit_reason(part, parts[part], alone), parts[part])

    def _unpack(self, bundle: Bundle, settings: Settings, ledger: PackingLedger) -> None:
        table, parts = self._table, bundle.parts
        weight, packing = parts[table.packed], None
        if weight.dtype not in table.also_plain:
            packing = self._unpack_packed(bundle, settings, ledger)
        for part, description in table.companions.items():
            if part in parts:
                own_description = packing.descriptions.get(part) if packing else None
                ledger.note(own_description or description, parts[part])
        for reason in bundle.faults:
            ledger.fault(reason, weight)

    def _unpack_packed(
        self, bundle: Bundle, settings: Settings, ledger: PackingLedger
    ) -> Packing | None:
        """Record the packed tensor in the model's shape, and companions that contradict it."""
        table, parts = self._table, bundle.parts
        weight = parts[table.packed]
        observed = f"{_last(weight)} is {weight.dtype} {weight.shape}"
        if weight.dtype is not None and weight.dtype not in table.dtypes:
            ledger.fault(f"{observed}, expected {' or '.join(sorted(table.dtypes))}", weight)
            return None
        reading = None if weight.shape is None else self._reading(bundle, settings)
        packing = reading if isinstance(reading, Packing) else None
        missing = [part for part in table.needed(parts, settings, packing) if part not in parts]
        if missing:
            ledger.lack(f"{LACKS}{' and '.join(missing)}", weight)
        if isinstance(reading, str):
            if not missing:
                ledger.fault(f"{observed}, expected {reading}", weight)
            return None
        if packing is not None:
            self._report_misfits(packing, parts, ledger)
        shape, dtype = (packing.shape, packing.dtype) if packing else (None, table.dtype)
        if packing is None and table.unseen_dtype is not None:
            dtype = table.unseen_dtype(parts, settings)
        self._add(bundle, shape, dtype, ledger)
        return packing

    def _add(self, bundle: Bundle, shape: Shape | None, dtype: str, ledger: PackingLedger) -> None:
        weight = bundle.parts[self._table.packed]
        if bundle.experts:
            unstack(weight, bundle.experts, shape, dtype, ledger)
        else:
            ledger.tensors.append(LogicalTensor(weight, bundle.name, shape, dtype))

    def _reading(self, bundle: Bundle, settings: Settings) -> Packing | str | None:
        """Return the packing from `by_shapes` with the fewest misfits, else its message or None."""
        expected, is_conv1d = self._expected(bundle), self._is_conv1d(bundle.module)
        # Its parts may have other names in the file, which decide with their shapes.
        shapes = tuple(
            (part, _last(one), one.dtype, one.shape) for part, one in bundle.parts.items()
        )
        key = (shapes, settings, expected, is_conv1d)
        if key not in self._readings:
            plain = expected[::-1] if is_conv1d and expected else expected
            readings = self._table.by_shapes(bundle.parts, settings, plain)
            if readings is None or isinstance(readings, str):
                self._readings[key] = readings
            else:
                best = min(readings, key=lambda one: self._misfit(one, bundle.parts, plain))
                is_transposed = is_conv1d and expected == best.shape[::-1]
                shape = best.shape[::-1] if is_transposed else best.shape
                self._readings[key] = replace(best, shape=shape)
        return self._readings[key]

    def _misfit(self, packing: Packing, parts: Members, expected: Shape | None) -> tuple[int, int]:
        """Return a sort key: the number of all contradictions, then of those in stored tensors.

        Each differing axis of a shape counts as one.
        """
        is_strange = expected is not None and packing.shape != expected
        misfits = sum(_distance(one, parts[part]) for part, one in self._misfits(packing, parts))
        return misfits + len(packing.doubts) + is_strange, misfits

    def _misfits(self, packing: Packing, parts: Members) -> Iterator[tuple[str, WrittenTensor]]:
        """Yield the tensors whose stored shape, or kind of dtype (float or not), differs."""
        for part, written in packing.tensors.items():
            if part in parts and not self._fits(part, parts[part], written):
                yield part, written

    def _fits(self, part: str, observed: StoredTensor, written: WrittenTensor) -> bool:
        if observed.shape not in {None, written.shape, *written.others}:
            return False
        if observed.dtype is None or observed.dtype in written.dtypes:
            return True
        is_kind = _is_float(observed.dtype) == _is_float(written.dtypes[0])
        return is_kind and part != self._table.packed

    def _report_misfits(self, packing: Packing, parts: Members, ledger: PackingLedger) -> None:
        words = f" for a weight of {packing.shape}{packing.words and ', '}{packing.words}"
        for part, written in self._misfits(packing, parts):
            name = _last(parts[part]) if part == self._table.packed else part
            ledger.fault(_misfit_reason(name, parts[part], written) + words, parts[part])
        for doubt in packing.doubts:
            ledger.fault(doubt, parts[self._table.packed])


def _misfit_reason(part: str, observed: StoredTensor, written: WrittenTensor) -> str:
    if observed.shape not in {None, written.shape, *written.others}:
        return f"{part} is {shape_text(observed.shape)}, expected {shape_text(written.shape)}"
    return f"{part} is {observed.dtype}, expected {' or '.join(written.dtypes)}"


def _last(tensor: StoredTensor) -> str:
    return tensor.name.rpartition(".")[2]


def _distance(written: WrittenTensor, observed: StoredTensor) -> int:
    shape = observed.shape or ()
    if len(shape) != len(written.shape):
        return 1
    return max(1, sum(one != other for one, other in zip(shape, written.shape, strict=True)))


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("F", "BF"))
