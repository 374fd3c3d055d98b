"""Tables of modules: a few rows, whatever the size of the model; those that are alike in one."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from auditor.formats.text import Style, Styled, StyledLine, columns, cut_name, header_row
from auditor.names import first, how_many
from auditor.reconciler.fold import fold, refold
from auditor.reconciler.rows import ExpectedRows, ModuleRow, ModuleStatus
from auditor.tensors import natural_key


class Line(NamedTuple):
    """One or more modules of equal figures whose prefixes fold into one."""

    pattern: str
    modules: int
    row: ModuleRow  # of each one of them


def lines(rows: Iterable[ModuleRow], depth: int) -> list[Line]:
    """The rows down to `depth`; numbered siblings fold where all their figures are equal."""
    folded = rows.folded if isinstance(rows, ExpectedRows) else None
    alike: dict[ModuleRow, list[str]] = {}
    for row in rows if folded is None else folded:
        if row.depth <= depth:
            alike.setdefault(replace(row, prefix=""), []).append(row.prefix)
    fold_all = partial(fold, words=False) if folded is None else refold
    found = [
        Line(pattern, how_many(pattern), row)
        for row, prefixes in alike.items()
        for pattern in fold_all(prefixes)
    ]
    return sorted(found, key=lambda line: natural_key(first(line.pattern)))


_MIN_ROOM = 16  # for a prefix, where the figures take all of a narrow terminal
_UNKNOWN = "-"
STYLES: Mapping[str, Style] = {
    "missing": "bold red",
    "mismatched": "bold red",
    "unreadable": "bold red",
    "unexpected": "yellow",
    "duplicate": "yellow",
}


def stored_table(found: Sequence[Line], width: int) -> Iterator[StyledLine]:
    """Stored against expected; the figures of folded modules are those of all of them together.

    A column of which nothing is known is left out. Numbers are never cut: where they leave too
    little room for the prefixes, the table is wider than `width`.
    """
    figures = {
        "tensors": [_count(line, line.row.tensors) for line in found],
        "parameters": [_count(line, line.row.parameters) for line in found],
        "share": [_share(line) for line in found],
        "expected": [_count(line, line.row.expected) for line in found],
        "difference": [_difference(line) for line in found],
    }
    known = {name: cells for name, cells in figures.items() if set(cells) != {_UNKNOWN}}
    statuses = [line.row.status for line in found]
    taken = [_width(name, cells) for name, cells in known.items()]
    room = max(_MIN_ROOM, width - sum(taken) - len(taken) - 1 - _width("status", statuses))
    names = [cut_name(_prefix(line), room) for line in found]
    told = [(status, STYLES.get(status, "")) for status in statuses]
    rows = zip(names, *known.values(), told, strict=True)
    headings = header_row("module", *known, "status")
    return columns([headings, *rows], right=range(1, len(known) + 1))


def expected_table(found: Sequence[Line], width: int) -> Iterator[StyledLine]:
    """The expected side alone, with the formula of each module."""
    rows: list[Sequence[Styled | str]] = [header_row("module", "expected", "formula")]
    for line in found:
        formula = line.row.formula or _UNKNOWN
        text = formula if line.modules == 1 else f"{line.modules} x ({formula})"
        prefix = cut_name(_prefix(line), width // 2)
        rows.append((prefix, _count(line, line.row.expected), text))
    return columns(rows, right={1})


def _prefix(line: Line) -> str:
    return line.pattern if line.row.depth else "(whole model)"


def _count(line: Line, figure: int | None) -> str:
    return _figure(None if figure is None else line.modules * figure)


def _difference(line: Line) -> str:
    difference = line.row.difference
    return f"{line.modules * difference:+,}" if difference else _count(line, difference)


def _share(line: Line) -> str:
    share = line.row.share
    return _UNKNOWN if share is None else f"{line.modules * share:.1%}"


def _width(name: str, cells: Sequence[str]) -> int:
    return max(map(len, [name, *cells]))


# --- what the model is made of, each part once, with its share as a bar ------------------------


_BAR = 20  # cells of a bar that is the whole model
_MAX_ROWS, _MAX_DEEP_ROWS = 12, 60  # of a table of the usual depth, and of a deeper one
_USUAL_DEPTH = 2
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
    """Return what a module stores beside its children; None if nothing."""
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
    return replace(
        row,
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
    name = line.pattern or "(whole model)"
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
        figures["stored"] = [_figure(part.stored) for part in parts]
    if implied:
        figures["expected"] = [
            "=" if part.stored == part.expected else _figure(part.expected) for part in parts
        ]
    if known:
        figures["share"] = [f"{part.share or 0:.1%}" for part in parts]
    bars = [_bar(part.share or 0) for part in parts] if known else []
    taken = sum(max(map(len, (name, *cells))) + 2 for name, cells in figures.items())
    notes = max(len(part.note) for part in parts)
    room = max(_MIN_ROOM, width - taken - notes - 2)
    names = [cut_name(part.name, room) for part in parts]
    left = width - taken - notes - 2 - max(map(len, ("module", *names))) - 2
    if left < max(map(len, bars), default=0):
        bars = []
    drawn = [[(bar, "cyan") for bar in bars]] if bars else []
    noted = [(part.note, STYLES.get(part.status, "dim")) for part in parts]
    rows = zip(names, *figures.values(), *drawn, noted, strict=True)
    headings = header_row("module", *figures, *("" for _ in drawn), "")
    return columns([headings, *rows], right=range(1, len(figures) + 1), gap=2)


def _figure(figure: int | None) -> str:
    return _UNKNOWN if figure is None else f"{figure:,}"


def _bar(share: float) -> str:
    """Full cells; what is less than one is a thin line, so that nothing is invisible."""
    cells = round(share * _BAR)
    thin = "\N{LEFT ONE EIGHTH BLOCK}" if share > 0 else ""
    return "\N{FULL BLOCK}" * cells or thin
