"""The table of modules that every format shows: a few rows even for a large model."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from auditor.formats.escapes import WHOLE
from auditor.formats.tables import Name, Share, Signed, SimpleTable, Status
from auditor.names.folding import first, fold, how_many, refold
from auditor.reconciler.rows import ExpectedRows, ModuleRow, ModuleStatus
from auditor.tensors import natural_key


class Line(NamedTuple):
    """A line of the table: a module, or modules with equal counts whose prefixes fold into one.

    Its counts are sums over the modules.
    """

    pattern: str
    modules: int
    row: ModuleRow  # the row of one of the modules

    @property
    def name(self) -> str:
        return Name(self.pattern) if self.row.depth else WHOLE

    @property
    def tensors(self) -> int:
        return self.modules * self.row.tensors

    @property
    def stored(self) -> int | None:
        return _times(self.modules, self.row.parameters)

    @property
    def expected(self) -> int | None:
        return _times(self.modules, self.row.expected)

    @property
    def share(self) -> float | None:
        return None if self.row.share is None else self.modules * self.row.share

    @property
    def status(self) -> str:
        return self.row.status

    @property
    def formula(self) -> str | None:
        """The formula of all modules: `12 x (4*D^2)`."""
        if self.row.formula is None or self.modules == 1:
            return self.row.formula
        return f"{self.modules} x ({self.row.formula})"


def _times(modules: int, figure: int | None) -> int | None:
    return None if figure is None else modules * figure


def lines(rows: Iterable[ModuleRow], depth: int) -> list[Line]:
    """Return the rows down to `depth`; numbered siblings with equal counts fold into one."""
    folded = rows.folded if isinstance(rows, ExpectedRows) else None
    prefixes_by_figures: dict[ModuleRow, list[str]] = {}
    for row in rows if folded is None else folded:
        if row.depth <= depth:
            prefixes_by_figures.setdefault(replace(row, prefix=""), []).append(row.prefix)
    fold_all = partial(fold, words=False) if folded is None else refold
    lines_by_figures = [
        Line(pattern, how_many(pattern), row)
        for row, prefixes in prefixes_by_figures.items()
        for pattern in fold_all(prefixes)
    ]
    return sorted(lines_by_figures, key=lambda line: natural_key(first(line.pattern)))


# The columns, by heading. A module is a Line, or a Cell of an icicle.
_COLUMNS: Mapping[str, Callable[[Any], Any]] = {
    "module": lambda module: module.name,
    "modules": lambda module: module.modules,
    "tensors": lambda module: module.tensors,
    "stored": lambda module: module.stored,
    "expected": lambda module: module.expected,
    "difference": lambda module: (
        None
        if None in {module.stored, module.expected}
        else Signed(module.stored - module.expected)
    ),
    "share": lambda module: None if module.share is None else Share(module.share),
    "status": lambda module: Status(module.status),
    "formula": lambda module: module.formula and Name(module.formula),
}


def module_table(modules: Iterable[Any], *names: str) -> SimpleTable:
    """Return the table of modules with the named columns."""
    values = [_COLUMNS[name] for name in names]
    rows = tuple(tuple(value(module) for value in values) for module in modules)
    return SimpleTable("modules", names, rows)


# --- modules that together are the complete model -----------------------------------------------


_MAX_ROWS, _MAX_DEEP_ROWS = 12, 60  # most rows at the usual depth, and at greater depths
_USUAL_DEPTH = 2
_MOST_KINDS = 2  # most sizes of layers that a note lists
_LISTED_APART = {"unused", "newly-initialized"}
_WITHOUT_WORD = {"equal", "unchecked", "differs"}  # statuses that need no note
_OWN = "(itself)"


class Part(NamedTuple):
    """A module, or several folded into one, in a list of modules that cover the model once.

    `note` is its status, or its number of layers.
    """

    name: str
    stored: int | None
    expected: int | None
    share: float | None
    note: str
    status: str


def parts_of(rows: Sequence[ModuleRow], depth: int) -> list[Part]:
    """Return modules down to a depth such that each used tensor is in exactly one of them."""
    below = _children(rows)
    parts = [
        _part(line, below)
        for line in lines(_leaves(rows, below, depth), depth)
        if line.status not in _LISTED_APART
    ]
    most = _MAX_ROWS if depth <= _USUAL_DEPTH else _MAX_DEEP_ROWS
    return parts if len(parts) <= most else [*parts[: most - 1], _all_others(parts[most - 1 :])]


def _children(rows: Sequence[ModuleRow]) -> Mapping[str, Sequence[ModuleRow]]:
    """Map each prefix to the rows directly below it; levels that are not listed are skipped."""
    listed_prefixes = {row.prefix for row in rows}
    below: dict[str, list[ModuleRow]] = defaultdict(list)
    for row in rows:
        if row.prefix:
            below[nearest(row.prefix, listed_prefixes)].append(row)
    return below


def nearest(prefix: str, listed_prefixes: Iterable[str]) -> str:
    """Return the longest listed prefix above a prefix, else "" (the root)."""
    above = prefix.rpartition(".")[0]
    while above and above not in listed_prefixes:
        above = above.rpartition(".")[0]
    return above


def _leaves(
    rows: Iterable[ModuleRow], below: Mapping[str, Sequence[ModuleRow]], depth: int
) -> Iterator[ModuleRow]:
    """Yield modules without listed children; for other modules, rows of their direct tensors."""
    for row in rows:
        children = below.get(row.prefix, ()) if row.depth < depth else ()
        if row.depth <= depth and not children:
            yield row
        elif row.depth <= depth and (own := _own(row, children)) is not None:
            yield own


def _own(row: ModuleRow, children: Sequence[ModuleRow]) -> ModuleRow | None:
    """Return a row for the tensors of a module outside its children; None without such tensors."""
    tensors = row.tensors - sum(child.tensors for child in children)
    stored, expected = (
        None if whole is None else whole - sum(getattr(child, name) or 0 for child in children)
        for name in ("parameters", "expected")
        for whole in (getattr(row, name),)
    )
    if not (tensors or expected):
        return None
    share = None if row.share is None else row.share - sum(child.share or 0 for child in children)
    status: ModuleStatus = "equal" if stored == expected else "differs"
    return replace(
        row,
        prefix=f"{row.prefix} {_OWN}" if row.prefix else _OWN,
        tensors=tensors,
        parameters=stored,
        expected=expected,
        share=share,
        status=status if row.status != "unchecked" else row.status,
    )


def _part(line: Line, below: Mapping[str, Sequence[ModuleRow]]) -> Part:
    row, times = line.row, line.modules
    parameters = row.expected if row.parameters is None else row.parameters
    if row.status not in _WITHOUT_WORD:
        note: str = row.status
    elif times > 1:
        note = f"{times:,} x {parameters:,}" if parameters else f"{times:,} x"
    else:
        note = _layers(line.pattern, row, below)
    name = Name(line.pattern) if line.pattern else WHOLE
    return Part(name, line.stored, line.expected, line.share, note, row.status)


def _layers(prefix: str, row: ModuleRow, below: Mapping[str, Sequence[ModuleRow]]) -> str:
    """Return `12 x 7,087,872` for a module that consists of numbered layers, else "".

    The text begins with `with` if the module has parameters outside the layers.
    """
    children = below.get(prefix, ())
    lists = [child for child in children if _are_numbered(below.get(child.prefix, ()))]
    if _are_numbered(children):
        layers = children
    else:
        layers = below[lists[0].prefix] if len(lists) == 1 else ()
    if not layers or any(layer.status != "equal" for layer in layers):
        return ""
    kinds = Counter(layer.parameters for layer in layers)
    if len(kinds) > _MOST_KINDS:
        return f"{len(layers):,} layers"
    text = " + ".join(f"{count:,} x {each or 0:,}" for each, count in kinds.items())
    is_whole = sum(layer.parameters or 0 for layer in layers) == row.parameters
    return text if is_whole else f"with {text}"


def _are_numbered(rows: Sequence[ModuleRow]) -> bool:
    return len(rows) > 1 and all(row.prefix.rpartition(".")[2].isdecimal() for row in rows)


def _all_others(parts: Sequence[Part]) -> Part:
    """Return the sum of the parts that are not listed, as one part, so that columns add up."""
    stored, expected = (
        None if None in figures else sum(figure or 0 for figure in figures)
        for figures in ([part.stored for part in parts], [part.expected for part in parts])
    )
    share = None if parts[0].share is None else sum(part.share or 0 for part in parts)
    statuses = sorted({part.status for part in parts} - _WITHOUT_WORD)
    name, note = f"and {len(parts):,} more", ", ".join(statuses)
    return Part(name, stored, expected, share, note, statuses[0] if statuses else "equal")
