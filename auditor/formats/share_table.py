"""The short module table: what the model is made of, each part once, with its share as a bar."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from auditor.formats.layout import StyledLine, columns, header_row
from auditor.formats.module_lines import Line, lines
from auditor.formats.module_table import STYLES
from auditor.formats.text import cut_name, printable
from auditor.reconciler.module_rows import ModuleRow
from auditor.reconciler.status import ModuleStatus

_BAR = 20  # cells of a bar that is the whole model
_MAX_ROWS, _MAX_DEEP_ROWS = 12, 60  # of a table of the usual depth, and of a deeper one
_USUAL_DEPTH = 2
_LEAST_ROOM = 16  # for a prefix
_MOST_KINDS = 2  # of layers that a note tells apart
_TOLD = {"unused", "newly-initialized"}  # which stand in lists of their own
_WHOLE = {"equal", "unchecked", "differs"}  # statuses that need no word
_OWN = "(itself)"


class _Part(NamedTuple):
    """A row as it is shown."""

    name: str
    stored: int | None
    expected: int | None
    share: float | None
    note: str
    status: str


def share_table(rows: Sequence[ModuleRow], depth: int, width: int) -> Iterator[StyledLine]:
    """The modules of which the model is made at that depth; what is unused is not among them."""
    below = _children(rows)
    parts = [
        _part(line, below)
        for line in lines(_leaves(rows, below, depth), depth)
        if line.row.status not in _TOLD
    ]
    most = _MAX_ROWS if depth <= _USUAL_DEPTH else _MAX_DEEP_ROWS
    if len(parts) > most:
        parts = [*parts[: most - 1], _rest(parts[most - 1 :])]
    if parts:
        yield from _table(parts, width)


def _children(rows: Sequence[ModuleRow]) -> Mapping[str, Sequence[ModuleRow]]:
    """The rows below each prefix; where one between them is not listed, below the next above."""
    known = {row.prefix for row in rows}
    below: dict[str, list[ModuleRow]] = defaultdict(list)
    for row in rows:
        above = row.prefix.rpartition(".")[0]
        while above and above not in known:
            above = above.rpartition(".")[0]
        if row.prefix:
            below[above].append(row)
    return below


def _leaves(
    rows: Iterable[ModuleRow], below: Mapping[str, Sequence[ModuleRow]], depth: int
) -> Iterator[ModuleRow]:
    """The rows at the depth and those above it that end there; what a module has of its own."""
    for row in rows:
        if row.depth > depth:
            continue
        children = below.get(row.prefix, ()) if row.depth < depth else ()
        if not children:
            yield row
        elif (own := _own(row, children)) is not None:
            yield own


def _own(row: ModuleRow, children: Sequence[ModuleRow]) -> ModuleRow | None:
    """What a module stores beside its children; None: nothing."""
    tensors = row.tensors - sum(one.tensors for one in children)
    stored, expected = (
        _less(getattr(row, name), [getattr(one, name) for one in children])
        for name in ("parameters", "expected")
    )
    if not (tensors or expected):
        return None
    share = None if row.share is None else row.share - sum(one.share or 0 for one in children)
    name = f"{row.prefix} {_OWN}" if row.prefix else _OWN
    status: ModuleStatus = "equal" if stored == expected else "differs"
    return row._replace(
        prefix=name,
        tensors=tensors,
        parameters=stored,
        expected=expected,
        share=share,
        status=status if row.status != "unchecked" else row.status,
    )


def _less(whole: int | None, parts: Sequence[int | None]) -> int | None:
    return None if whole is None else whole - sum(part or 0 for part in parts)


def _part(line: Line, below: Mapping[str, Sequence[ModuleRow]]) -> _Part:
    row, times = line.row, line.modules
    stored = None if row.parameters is None else times * row.parameters
    expected = None if row.expected is None else times * row.expected
    each = row.expected if row.parameters is None else row.parameters
    if row.status not in _WHOLE:
        note: str = row.status
    elif times > 1:
        note = f"{times:,} x {each:,}" if each else f"{times:,} x"
    else:
        note = _layers(line.pattern, row, below)
    share = None if row.share is None else times * row.share
    name = printable(line.pattern) or "(whole model)"
    return _Part(name, stored, expected, share, note, row.status)


def _layers(prefix: str, row: ModuleRow, below: Mapping[str, Sequence[ModuleRow]]) -> str:
    """`12 x 7,087,872`: the numbered modules below, if they are all, or all but a little, of it."""
    children = below.get(prefix, ())
    lists = [one for one in children if _numbered(below.get(one.prefix, ()))]
    layers = children if _numbered(children) else below[lists[0].prefix] if len(lists) == 1 else ()
    if not layers or any(one.status != "equal" for one in layers):
        return ""
    kinds = Counter(one.parameters for one in layers)
    if len(kinds) > _MOST_KINDS:
        return f"{len(layers):,} layers"
    said = " + ".join(f"{count:,} x {each or 0:,}" for each, count in kinds.items())
    whole = sum(one.parameters or 0 for one in layers) == row.parameters
    return said if whole else f"with {said}"


def _numbered(rows: Sequence[ModuleRow]) -> bool:
    return len(rows) > 1 and all(row.prefix.rpartition(".")[2].isdecimal() for row in rows)


def _rest(parts: Sequence[_Part]) -> _Part:
    """All that there is no room for, in one row, so that columns add up."""
    stored, expected = (
        None if None in values else sum(value or 0 for value in values)
        for values in ([one.stored for one in parts], [one.expected for one in parts])
    )
    share = None if parts[0].share is None else sum(one.share or 0 for one in parts)
    differs = sorted({one.status for one in parts} - _WHOLE)
    name = f"and {len(parts):,} more"
    return _Part(
        name, stored, expected, share, ", ".join(differs), differs[0] if differs else "equal"
    )


def _table(parts: Sequence[_Part], width: int) -> Iterator[StyledLine]:
    known = any(part.stored is not None for part in parts)
    implied = any(part.expected is not None for part in parts)
    figures: dict[str, list[str]] = {}
    if known:
        figures["stored"] = [_count(part.stored) for part in parts]
    if implied:
        figures["expected"] = [
            "=" if part.stored == part.expected else _count(part.expected) for part in parts
        ]
    if known:
        figures["share"] = [f"{part.share or 0:.1%}" for part in parts]
    bars = [_bar(part.share or 0) for part in parts] if known else []
    taken = sum(max(map(len, (name, *cells))) + 2 for name, cells in figures.items())
    notes = max(len(part.note) for part in parts)
    room = max(_LEAST_ROOM, width - taken - notes - 2)
    names = [cut_name(part.name, room) for part in parts]
    left = width - taken - notes - 2 - max(map(len, ("module", *names))) - 2
    if left < max(map(len, bars), default=0):
        bars = []
    drawn = [[(bar, "cyan") for bar in bars]] if bars else []
    noted = [(part.note, STYLES.get(part.status, "dim")) for part in parts]
    rows = zip(names, *figures.values(), *drawn, noted, strict=True)
    headings = header_row("module", *figures, *("" for _ in drawn), "")
    return columns([headings, *rows], right=range(1, len(figures) + 1), gap=2)


def _count(figure: int | None) -> str:
    return "-" if figure is None else f"{figure:,}"


def _bar(share: float) -> str:
    """Full cells; what is less than one is a thin line, so that nothing is invisible."""
    cells = round(share * _BAR)
    thin = "\N{LEFT ONE EIGHTH BLOCK}" if share > 0 else ""
    return "\N{FULL BLOCK}" * cells or thin
