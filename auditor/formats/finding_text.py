"""Findings and their causes as text for people."""

from collections.abc import Iterator, Mapping
from itertools import takewhile

from auditor.formats.text import (
    Style,
    StyledLine,
    columns,
    counted,
    cut_name,
    shown,
    styled,
    wrapped,
)
from auditor.reconciler.findings import (
    Duplicate,
    Finding,
    NewlyInitialized,
    Severity,
    TiedWeight,
    Unused,
)
from auditor.reconciler.fold import fold
from auditor.report import Diagnosis, Report, Unaudited

SEVERITIES: Mapping[Severity, Style] = {
    Severity.ERROR: "bold red",
    Severity.WARNING: "bold yellow",
    Severity.INFO: "bold",
}

_MAX_NAMES = 6  # of one finding
_MAX_LISTED = 8  # unused modules
_MODULES = 2  # of those that have no name in common
_LEAST_ROOM = 16  # for a class name


def cause_text(one: Diagnosis, findings: tuple[Finding, ...], width: int) -> Iterator[StyledLine]:
    """The cause, the fix, and a line for each finding that it explains."""
    yield styled(f"why: {one.cause}", SEVERITIES[one.severity])
    yield from wrapped(shown(one.summary), width, 2)
    yield from wrapped((("fix: ", "bold"), (shown(one.fix), "")), width, 2)
    for at in one.findings:
        yield from wrapped((("explains ", ""), *_heading(findings[at], ignored=False)), width, 2)


def finding_text(
    finding: Finding,
    width: int,
    *,
    verbose: bool,
    ignored: bool = False,
) -> Iterator[StyledLine]:
    """A finding with its first names, or with all of them, and its reason."""
    yield from wrapped(_heading(finding, ignored=ignored), width)
    folded = _names(finding)
    named = folded if verbose else folded[:_MAX_NAMES]
    for name in named:
        yield from wrapped(cut_name(name, width - 4), width, 4)
    if len(folded) > len(named):
        yield from wrapped(f"and {len(folded) - len(named):,} more of such names", width, 4)
    yield from wrapped(shown(finding.reason), width, 2)


def _names(finding: Finding) -> tuple[str, ...]:
    """The folded names; of copies each with the tensor that it is a copy of."""
    if finding.names == (finding.file,):
        return ()
    if not isinstance(finding, TiedWeight | Duplicate):
        return fold(finding.names)
    copies: dict[str, list[str]] = {}
    for name, kept in zip(
        finding.names, finding.to if isinstance(finding, TiedWeight) else finding.of, strict=True
    ):
        copies.setdefault(kept, []).append(name)
    return tuple(
        name if name == other else f"{name} = {other}"
        for kept, names in copies.items()
        for other in fold([kept])
        for name in fold(names)
    )


def _heading(finding: Finding, *, ignored: bool) -> StyledLine:
    style: Style = "dim" if ignored else SEVERITIES[finding.severity]
    kind = f"{'ignored ' if ignored else ''}{finding.severity}: {finding.kind}"
    file = finding.file
    without = finding.names == (file,) or not finding.count
    concerned = [] if without else [counted(finding.count, "name")]
    if finding.parameters:
        concerned.append(counted(finding.parameters, "parameter"))
    if file is not None:
        concerned.append(shown(file))
    of = f" ({', '.join(concerned)})" if concerned else ""
    return (kind, style), (of, "dim" if ignored else "")


# --- what is stored and not used, or used and not stored ----------------------------------------


def unused_text(one: Report | Unaudited, width: int) -> Iterator[StyledLine]:
    """What the target class leaves out, and which classes use it."""
    found = [finding for finding in one.findings if isinstance(finding, Unused)]
    if not found:
        return
    listed = one.load_report and any(not finding.silent for finding in found)
    safe = "safe; from_pretrained lists them" if listed else "safe"
    title = f"Stored but unused by {shown(one.target or 'the target')}"
    yield from wrapped(((title, "bold"), (f" ({safe})", "")), width)
    yield from _listed([(each, each.used_by) for each in found], width)
    if len(found) > _MAX_LISTED:
        yield styled(f"  and {len(found) - _MAX_LISTED:,} more")


def afresh_text(one: Report | Unaudited, width: int) -> Iterator[StyledLine]:
    """What loading initializes."""
    found = [finding for finding in one.findings if isinstance(finding, NewlyInitialized)]
    if found:
        yield styled("Not stored: loading starts them from random values", "bold")
        yield from _listed([(each, ()) for each in found], width)


def _listed(
    found: list[tuple[Unused | NewlyInitialized, tuple[str, ...]]], width: int
) -> Iterator[StyledLine]:
    """Modules, who uses them, and their parameters: of a single one the account has them."""
    rows = [
        (common_modules(each.names), f"{each.parameters:,}" if found[1:] else "", classes)
        for each, classes in found[:_MAX_LISTED]
    ]
    counts = max(len(count) for _, count, _ in rows)
    names = [cut_name(name, width - counts - 2 * _LEAST_ROOM) for name, _, _ in rows]
    room = width - 2 - max(map(len, names)) - counts - 4
    cells = [
        (f"  {name}", count, _users(classes, max(room, _LEAST_ROOM)))
        for name, (_, count, classes) in zip(names, rows, strict=True)
    ]
    return columns(cells, right={1}, gap=2, width=width)


def common_modules(names: tuple[str, ...]) -> str:
    """The module that all the names are of; where there is none, the first of several."""
    first, last = min(names).split("."), max(names).split(".")
    common = [one for one, other in takewhile(_same, zip(first, last, strict=False))]
    if common:
        return fold([".".join(common)])[0]
    modules = fold({name.rpartition(".")[0] or name for name in names})
    more = f" and {len(modules) - _MODULES:,} more" if len(modules) > _MODULES else ""
    return ", ".join(modules[:_MODULES]) + more


def _same(pair: tuple[str, str]) -> bool:
    return pair[0] == pair[1]


def _users(classes: tuple[str, ...], room: int) -> str:
    """`used by A, B +3`: as many as fit, one at least."""
    if not classes:
        return ""
    for count in range(len(classes), 0, -1):
        more = f" +{len(classes) - count}" if count < len(classes) else ""
        said = f"used by {', '.join(classes[:count])}{more}"
        if len(said) <= room:
            return said
    return said
