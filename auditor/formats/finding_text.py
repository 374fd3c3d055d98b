"""Findings and their causes as text for people."""

from collections.abc import Iterator
from itertools import takewhile

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from auditor.formats.plain_console import indented, shown
from auditor.formats.text import counted, cut_name, printable
from auditor.reconciler.findings import (
    BadConfig,
    BadDigest,
    BadHeader,
    BadIndex,
    BadSize,
    CopyDiffers,
    Duplicate,
    Finding,
    NewlyInitialized,
    OfKeys,
    Severity,
    TiedWeight,
    Unsafe,
    Unused,
    WrongTotal,
    count_of,
)
from auditor.reconciler.fold import fold
from auditor.report import Diagnosis, Report, Unaudited

SEVERITIES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.INFO: "bold"}

_MAX_NAMES = 6  # of one finding
_MAX_LISTED = 8  # unused modules
_MODULES = 2  # of those that have no name in common
_LEAST_ROOM = 16  # for a class name


def cause_text(one: Diagnosis, findings: tuple[Finding, ...]) -> Iterator[RenderableType]:
    """The cause, the fix, and a line for each finding that it explains."""
    yield Text("why: ", SEVERITIES[one.severity]).append(one.cause)
    yield indented(shown(one.summary), 2)
    yield Padding(Text("fix: ", "bold").append(shown(one.fix), "not bold"), (0, 0, 0, 2))
    for at in one.findings:
        explained = Text("explains ").append_text(_heading(findings[at], ignored=False))
        yield Padding(explained, (0, 0, 0, 2))


def finding_text(
    finding: Finding,
    width: int,
    *,
    verbose: bool,
    ignored: bool = False,
) -> Iterator[RenderableType]:
    """A finding with its first names, or with all of them, and its reason."""
    yield _heading(finding, ignored=ignored)
    folded = _names(finding)
    named = folded if verbose else folded[:_MAX_NAMES]
    yield from (indented(cut_name(printable(name), width - 4), 4) for name in named)
    if len(folded) > len(named):
        yield indented(f"and {len(folded) - len(named):,} more of such names", 4)
    yield indented(shown(finding.reason), 2)


def _names(finding: Finding) -> tuple[str, ...]:
    """The folded names; of copies each with the tensor that it is a copy of."""
    if finding.names == (file_of(finding),):
        return ()
    if not isinstance(finding, TiedWeight | Duplicate):
        return fold(finding.names)
    copies: dict[str, list[str]] = {}
    for name, kept in zip(
        finding.names, finding.to if isinstance(finding, TiedWeight) else finding.of, strict=True
    ):
        copies.setdefault(kept, []).append(name)
    return tuple(
        f"{name} = {other}"
        for kept, names in copies.items()
        for other in fold([kept])
        for name in fold(names)
    )


def _heading(finding: Finding, *, ignored: bool) -> Text:
    style = "dim" if ignored else SEVERITIES[finding.severity]
    heading = Text(f"{'ignored ' if ignored else ''}{finding.severity}: {finding.kind}", style)
    file = file_of(finding)
    concerned = [] if finding.names == (file,) else [counted(count_of(finding), "name")]
    if finding.parameters:
        concerned.append(counted(finding.parameters, "parameter"))
    if file is not None:
        concerned.append(shown(file))
    return heading.append(f" ({', '.join(concerned)})", style="not bold")


def file_of(finding: Finding) -> str | None:
    """The file that the finding is about; None: it is about tensors, wherever they are."""
    if isinstance(
        finding,
        BadHeader
        | BadIndex
        | BadSize
        | BadDigest
        | WrongTotal
        | BadConfig
        | Unsafe
        | CopyDiffers
        | OfKeys,
    ):
        return finding.file
    return None


# --- what is stored and not used, or used and not stored ----------------------------------------


def unused_text(one: Report | Unaudited, width: int) -> Iterator[RenderableType]:
    """What the target class leaves out, and which classes use it."""
    found = [finding for finding in one.findings if isinstance(finding, Unused)]
    if not found:
        return
    listed = one.load_report and any(not finding.silent for finding in found)
    safe = "safe; from_pretrained lists them" if listed else "safe"
    yield Text(f"Stored but unused by {shown(one.target or 'the target')}", "bold").append(
        f" ({safe})", "not bold"
    )
    yield _listed([(each, each.used_by) for each in found], width)
    if len(found) > _MAX_LISTED:
        yield indented(f"and {len(found) - _MAX_LISTED:,} more", 2)


def afresh_text(one: Report | Unaudited, width: int) -> Iterator[RenderableType]:
    """What loading initializes."""
    found = [finding for finding in one.findings if isinstance(finding, NewlyInitialized)]
    if found:
        yield Text("Not stored: loading starts them from random values", "bold")
        yield _listed([(each, ()) for each in found], width)


def _listed(
    found: list[tuple[Unused | NewlyInitialized, tuple[str, ...]]], width: int
) -> RenderableType:
    """Modules, who uses them, and their parameters: of a single one the account has them."""
    rows = [
        (common_modules(each.names), f"{each.parameters:,}" if found[1:] else "", classes)
        for each, classes in found[:_MAX_LISTED]
    ]
    table = Table.grid(padding=(0, 2, 0, 0))
    for justify in ("left", "right", "left"):
        table.add_column(justify=justify, overflow="fold")
    counts = max(len(count) for _, count, _ in rows)
    names = [cut_name(printable(name), width - counts - 2 * _LEAST_ROOM) for name, _, _ in rows]
    room = width - 2 - max(map(len, names)) - counts - 4
    for name, (_, count, classes) in zip(names, rows, strict=True):
        table.add_row(Text(name), Text(count), Text(_users(classes, max(room, _LEAST_ROOM))))
    return Padding(table, (0, 0, 0, 2))


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
            return printable(said)
    return printable(said)
