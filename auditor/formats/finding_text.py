"""The text of findings and of their causes, for people."""

from collections.abc import Iterator, Mapping

from auditor.findings import (
    Finding,
    Mismatched,
    Missing,
    NewlyInitialized,
    OfCopies,
    OfInitialized,
    OfTied,
    OfUnused,
    Severity,
    Unused,
)
from auditor.formats.text import (
    Style,
    StyledLine,
    columns,
    cut_name,
    shown,
    styled,
    wrapped,
)
from auditor.formats.verdict import cause_sentence, common_module, counts_of
from auditor.names.folding import fold
from auditor.report import Diagnosis, Report, Unaudited

SEVERITIES: Mapping[Severity, Style] = {
    Severity.ERROR: "bold red",
    Severity.WARNING: "bold yellow",
    Severity.INFO: "bold",
}

_MAX_NAMES = 6  # names shown of one finding
_MAX_LISTED = 8  # rows of modules
_MODULES = 2  # most modules in a row, if their names have no common prefix
_LEAST_ROOM = 16  # least cells for a class name


ARROW = "\N{RIGHTWARDS ARROW}"  # before what to do


def cause_text(cause: Diagnosis, width: int) -> Iterator[StyledLine]:
    """Yield a cause that is not the headline: its name, its sentence, and the fix."""
    label = f"{cause.severity}: {cause.cause}"
    yield styled(label, SEVERITIES[cause.severity])
    yield from wrapped(shown(cause_sentence(cause)), width, 2)
    yield from wrapped(((f"{ARROW} ", "bold"), (shown(cause.fix), "")), width, 2)


def finding_text(
    finding: Finding,
    width: int,
    *,
    verbose: bool,
    ignored: bool = False,
    reason: bool = True,
) -> Iterator[StyledLine]:
    """Yield a finding's heading, its first names (all if verbose) and, if `reason`, its reason."""
    yield from wrapped(_heading(finding, ignored=ignored), width)
    folded = _names(finding)
    named = folded if verbose else folded[:_MAX_NAMES]
    for name in named:
        yield from wrapped(cut_name(name, width - 4), width, 4)
    if len(folded) > len(named):
        yield from wrapped(f"and {len(folded) - len(named):,} more such names", width, 4)
    if reason:
        yield from wrapped(shown(finding.reason), width, 2)


def _names(finding: Finding) -> tuple[str, ...]:
    """Return the folded names, as `copy = original` for copies.

    Return () if the only name is that of the finding's file.
    """
    if finding.names == (finding.file,):
        return ()
    if not isinstance(finding, OfTied | OfCopies):
        return fold(finding.names)
    originals = finding.tied_to if isinstance(finding, OfTied) else finding.of
    copies_by_original: dict[str, list[str]] = {}
    for copy, original in zip(finding.names, originals, strict=True):
        copies_by_original.setdefault(original, []).append(copy)
    return tuple(
        copy if copy == folded_original else f"{copy} = {folded_original}"
        for original, copies in copies_by_original.items()
        for folded_original in fold([original])
        for copy in fold(copies)
    )


def _heading(finding: Finding, *, ignored: bool) -> StyledLine:
    style: Style = "dim" if ignored else SEVERITIES[finding.severity]
    kind = f"{'ignored ' if ignored else ''}{finding.severity}: {finding.kind}"
    file = finding.file
    details = counts_of(finding)
    if finding.names == (file,):
        details = details[1:]
    if file is not None:
        details.append(shown(file))
    return (kind, style), (f" ({', '.join(details)})" if details else "", "dim" if ignored else "")


# --- unused and newly initialized tensors -------------------------------------------------------


def unused_text(outcome: Report | Unaudited, width: int) -> Iterator[StyledLine]:
    """Yield the modules that the target class does not use, and the classes that use them."""
    unused = [finding for finding in outcome.findings if Unused.describes(finding)]
    if not unused:
        return
    is_listed = outcome.load_report is not None and any(not finding.silent for finding in unused)
    is_lossy = any(finding.kind in {Missing.kind, Mismatched.kind} for finding in outcome.findings)
    is_safe = not (is_lossy or outcome.unread)
    remarks = ["safe"] * is_safe + ["from_pretrained lists them"] * is_listed
    title = f"Stored but unused by {shown(outcome.target or 'the target')}"
    yield from wrapped(
        ((title, "bold"), (f" ({'; '.join(remarks)})" if remarks else "", "")), width
    )
    yield from _module_rows([(each, each.used_by) for each in unused], width)
    if len(unused) > _MAX_LISTED:
        yield styled(f"  and {len(unused) - _MAX_LISTED:,} more")


def newly_initialized_text(outcome: Report | Unaudited, width: int) -> Iterator[StyledLine]:
    """Yield the modules that are not stored and that loading initializes."""
    initialized = [finding for finding in outcome.findings if NewlyInitialized.describes(finding)]
    if initialized:
        yield styled("Not stored: loading starts them from random values", "bold")
        yield from _module_rows([(each, ()) for each in initialized], width)


def _module_rows(
    findings: list[tuple[OfUnused | OfInitialized, tuple[str, ...]]], width: int
) -> Iterator[StyledLine]:
    """Yield a row for each finding: modules, parameters (if there are several rows), classes."""
    rows = [
        (common_modules(each.names), f"{each.parameters:,}" if findings[1:] else "", classes)
        for each, classes in findings[:_MAX_LISTED]
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
    """Return the innermost module that contains all names.

    If that is the root, return the first few modules instead.
    """
    if common := common_module(names):
        return fold([common])[0]
    modules = fold({name.rpartition(".")[0] or name for name in names})
    more = f" and {len(modules) - _MODULES:,} more" if len(modules) > _MODULES else ""
    return ", ".join(modules[:_MODULES]) + more


def _users(classes: tuple[str, ...], room: int) -> str:
    """Return `used by A, B +3`: as many classes as fit, at least one."""
    if not classes:
        return ""
    for count in range(len(classes), 0, -1):
        more = f" +{len(classes) - count}" if count < len(classes) else ""
        text = f"used by {', '.join(classes[:count])}{more}"
        if len(text) <= room:
            break
    return text
