"""Rows of a report under the checkpoint's names: by module and by dtype."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, cast

from msgspec import Struct

from auditor.analytic import Expectation, ModuleFormula, Role
from auditor.names.parts import parent
from auditor.reconciler.matching import Fate, Step
from auditor.reconciler.reconcile import Absent, Reconciled
from auditor.tensors import DTYPE_BITS, Depth, StoredTensor, natural_key
from auditor.walker import Tally, Walk

ModuleStatus = Literal[
    "equal",  # stored tensors are as expected
    "unused",
    "unexpected",
    "newly-initialized",
    "missing",
    "mismatched",
    "differs",  # several of the other statuses
    "buffer",  # only buffers are stored
    "quantization-data",  # only quantization data is stored
    "tied",  # not stored: shares the values of another tensor
    "duplicate",
    "unreadable",  # in a file with a broken header, or in a missing shard
    "unchecked",  # there is no expectation, or no shape to compare
]


class ModuleRow(Struct, frozen=True):
    """The counts for the tensors below one module name of the checkpoint; "" is the whole model."""

    prefix: str
    depth: int  # number of dotted parts of the prefix; the root has 0
    tensors: int
    elements: int | None
    parameters: int | None
    expected: int | None  # parameters; None without an expectation
    difference: int | None  # parameters minus expected
    formula: str | None
    status: ModuleStatus
    trainable: int | None = None
    bytes: int | None = None
    share: float | None = None  # share of all stored parameters, 0 to 1


_NOT_STORED = Tally()
_NOT_EXPECTED = ModuleFormula(0, "0")


def compared_rows(
    reconciled: Reconciled,
    expectation: Expectation,
    walked: Walk,
    *,
    depth: Depth | None,
    shapes: bool,
) -> tuple[ModuleRow, ...]:
    """Return the rows of all modules that are stored or expected, down to the walk's `depth`.

    If `shapes` is false (names from an index alone), the stored counts are None.
    """
    tallies = walked.by_prefix()
    older = reconciled.moved or any(Step.OLDER in hit.steps for hit in reconciled.answered)
    if older or reconciled.shift:
        formulas = _as_stored(reconciled, expectation, depth)
    else:
        formulas = expectation.modules_to(depth)
    fates = _absent_fates(reconciled.absent, expectation.prefix, reconciled.shift, depth)
    all_parameters = tallies[""].parameters
    others = {**tallies, **fates}.keys() - formulas.keys()
    prefixes: Iterable[str] = formulas
    # Sorting 20,000 keys takes 50 ms.
    if others or older or reconciled.shift or not expectation.listed.in_order:
        prefixes = sorted((*formulas, *others), key=natural_key)
    return tuple(
        _row(
            prefix,
            tally := tallies.get(prefix, _NOT_STORED),
            formulas.get(prefix, _NOT_EXPECTED),
            status_of(tally.fates | fates.get(prefix, 0)),
            all_parameters if shapes else None,
        )
        for prefix in prefixes
    )


def stored_rows(walked: Walk, *, shapes: bool) -> tuple[ModuleRow, ...]:
    """Return the rows of stored tensors without an expectation."""
    tallies = walked.by_prefix()
    all_parameters = tallies[""].parameters if shapes else None
    return tuple(
        _row(prefix, tallies[prefix], None, "unchecked", all_parameters)
        for prefix in sorted(tallies, key=natural_key)
    )


def _row(
    prefix: str,
    tally: Tally,
    formula: ModuleFormula | None,
    status: ModuleStatus,
    all_parameters: int | None,
) -> ModuleRow:
    expected, text = formula or (None, None)
    if all_parameters is None:
        counts = (None, None, expected, None, text, status, None, None, None)
        return ModuleRow(prefix, depth_of(prefix), tally.tensors, *counts)
    parameters = tally.parameters
    return ModuleRow(
        prefix,
        depth_of(prefix),
        tally.tensors,
        tally.elements,
        parameters,
        expected,
        None if expected is None else parameters - expected,
        text,
        status,
        tally.trainable,
        tally.bytes,
        parameters / all_parameters if all_parameters else None,
    )


def depth_of(prefix: str) -> int:
    return prefix.count(".") + 1 if prefix else 0


def _as_stored(
    reconciled: Reconciled, expectation: Expectation, depth: Depth | None
) -> Mapping[str, ModuleFormula]:
    """Return each module's formula by its name in the file, which differs from the class's.

    A module of which only the path differs keeps its formula; any other gets a plain number.
    """
    counts: dict[str, int] = {}
    # The file may have a module a level higher than the class.
    modules = expectation.modules_to(None if depth is None else depth.one_deeper())
    formulas = {"": modules[""]}
    stored = {hit.expected.name: hit.stored.name for hit in reconciled.answered}
    if reconciled.moved:
        stored.update((name, tensor.name) for name, tensor in reconciled.plain.items())
    for tensor in expectation.tensors:
        if tensor.role.optional:
            continue
        shifted = _shifted(tensor.name, expectation.prefix, reconciled.shift)
        name = stored.get(tensor.name) or shifted or tensor.name
        ours, theirs = parent(tensor.name), parent(name)
        is_same_end = tensor.name.rpartition(".")[2] == name.rpartition(".")[2]
        while theirs:
            if is_same_end and ours in modules:
                formulas[theirs] = modules[ours]
            counts[theirs] = counts.get(theirs, 0) + (
                tensor.elements if tensor.role is Role.PARAMETER else 0
            )
            is_same_end = is_same_end and ours.rpartition(".")[2] == theirs.rpartition(".")[2]
            ours, theirs = parent(ours), parent(theirs)
    by_prefix = {"": modules[""]}
    for prefix, count in counts.items():
        if depth is None or depth.lists(prefix):
            formula = formulas.get(prefix)
            is_exact = formula is not None and formula.parameters == count
            by_prefix[prefix] = (
                formula if formula and is_exact else ModuleFormula(count, str(count))
            )
    return by_prefix


def _shifted(prefix: str, base: str, shift: Step | None) -> str | None:
    """Return a module's name in the file; None if the file has no such level.

    STRIPPED: `bert.encoder` in the file is `encoder` of BertModel. ADDED: `encoder` in the file is
    `bert.encoder` of BertForMaskedLM.
    """
    if shift is Step.STRIPPED:
        return f"{base}.{prefix}" if prefix else base
    if shift is Step.ADDED and (prefix == base or prefix.startswith(f"{base}.")):
        return prefix[len(base) + 1 :] or None
    return prefix


def _absent_fates(
    absent: Iterable[Absent], base: str, shift: Step | None, depth: Depth | None
) -> Mapping[str, int]:
    """Return, by module, the combined fates of the expected tensors that are not stored."""
    fates: dict[str, int] = {}
    for tensor, fate in absent:
        prefix = _shifted(parent(tensor.name), base, shift) or ""
        if depth is not None:
            prefix = depth.cut(prefix)
        while True:
            fates[prefix] = fates.get(prefix, 0) | fate
            if not prefix:
                break
            prefix = parent(prefix)
    return fates


# --- by dtype ----------------------------------------------------------------------------------


QUANTIZATION_DATA = "quantization-data"  # scales and similar tensors of any dtype


class Weights(Struct, frozen=True, kw_only=True):
    """All stored tensors of one dtype; packed tensors have the dtype of the numbers inside."""

    dtype: str  # "BF16", "INT4", or "quantization-data"
    tensors: int
    parameters: int
    bytes: int

    @property
    def bits_per_parameter(self) -> float | None:
        return 8 * self.bytes / self.parameters if self.parameters else None


def weights_by_dtype(reconciled: Reconciled, walked: Walk) -> tuple[Weights, ...]:
    """Return the stored weights by dtype, sorted; `walked` is the walk over the reconciled tensors.

    Tensors without a header are not included.
    """
    rows: dict[str, list[int]] = {}
    for dtype, tally in walked.by_dtype().items():
        _add(rows, dtype, tally.tensors, tally.parameters, tally.bytes)
    for dtype, tally in walked.by_dtype(Fate.QUANTIZATION_DATA.value).items():
        _add(rows, dtype, -tally.tensors, -tally.parameters, -tally.bytes)
        _add(rows, QUANTIZATION_DATA, tally.tensors, tally.parameters, tally.bytes)
    packed = reconciled.packed
    for tensor, parameters, _ in reconciled.counted if packed else ():
        inside, outside = packed.get((tensor.name, tensor.file)), tensor.dtype or ""
        if inside is not None:
            _add(rows, outside, -1, -parameters, -_bytes(tensor, outside))
            _add(rows, inside, 1, parameters, _bytes(tensor, inside))
    return tuple(
        Weights(dtype=dtype, tensors=tensors, parameters=parameters, bytes=size)
        for dtype, (tensors, parameters, size) in sorted(rows.items())
        if dtype and tensors
    )


def _add(rows: dict[str, list[int]], dtype: str, *counts: int) -> None:
    row = rows.get(dtype, (0, 0, 0))
    rows[dtype] = [count + more for count, more in zip(row, counts, strict=True)]


def _bytes(tensor: StoredTensor, dtype: str) -> int:
    if dtype in DTYPE_BITS:
        return (tensor.elements or 0) * DTYPE_BITS[dtype] // 8
    return tensor.span.length if tensor.span else 0


# --- rows without stored tensors ----------------------------------------------------------------


class ExpectedRows(Sequence[ModuleRow]):
    """The rows of all modules down to `depth`, created on demand.

    DeepSeek-V3 has 60,000 modules of 25 kinds (names that differ only in numbers), and folding
    needs only the kinds.
    """

    def __init__(self, expectation: Expectation, *, depth: Depth | None) -> None:
        self._expectation = expectation
        self._depth = depth

    @property
    def folded(self) -> Sequence[ModuleRow] | None:
        """The rows with equal layers folded into one row; None if it is unknown which are equal."""
        outline = self._expectation.outline
        return None if outline is None else tuple(self._rows(outline.modules.items()))

    @cached_property
    def _all_rows(self) -> tuple[ModuleRow, ...]:
        modules: Iterable[tuple[str, ModuleFormula]] = self._expectation.modules_to(
            self._depth
        ).items()
        if not self._expectation.listed.in_order:  # 60,000 modules take 0.1 s
            modules = sorted(modules, key=lambda item: natural_key(item[0]))
        return tuple(self._rows(modules))

    def _rows(self, modules: Iterable[tuple[str, ModuleFormula]]) -> Iterator[ModuleRow]:
        for prefix, formula in modules:
            if self._depth is None or depth_of(prefix) <= self._depth.most:
                yield _row(prefix, _NOT_STORED, formula, "unchecked", None)

    def __getitem__(self, at: Any) -> Any:
        return self._all_rows[at]

    def __len__(self) -> int:
        return len(self._all_rows)

    def __iter__(self) -> Iterator[ModuleRow]:
        return iter(self._all_rows)

    def __eq__(self, other: object) -> bool:
        return self._all_rows == (other._all_rows if isinstance(other, ExpectedRows) else other)

    def __hash__(self) -> int:
        return hash(self._all_rows)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the rows themselves, instead of the objects from which they are computed."""
        return tuple, (self._all_rows,)


# --- status ------------------------------------------------------------------------------------


_NAMES = {
    fate.value: cast("ModuleStatus", str(fate.name).lower().replace("_", "-")) for fate in Fate
}
_QUIET = (Fate.EQUAL | Fate.BUFFER | Fate.TIED | Fate.QUANTIZATION_DATA).value


def status_of(fates: int) -> ModuleStatus:
    """Return the status of combined fates; buffers, quantization data and ties do not alter it."""
    loud = fates & ~_QUIET
    if fates in _NAMES or not loud:
        return _NAMES.get(fates, "equal")
    if fates & Fate.EQUAL.value and loud != Fate.UNCHECKED.value:
        return "differs"
    return _NAMES.get(loud, "differs")
