"""The `audit check` command; plain `audit MODEL` is short for it."""

import os
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Annotated, Any

from msgspec.structs import replace

from auditor.audit.expected import require_oracle
from auditor.audit.pipeline import audit
from auditor.cli.console import (
    CLEAN,
    engines_asked,
    exit_code,
    outcomes_of,
    print_log,
    talk,
)
from auditor.cli.printing import (
    Shown,
    chosen_format,
    counted_depth,
    print_outcomes,
    require_format_of_tensors,
    write_reports,
)
from auditor.findings.ignore import Ignore
from auditor.formats.registry import FORMATS, MATERIALS, TERMINAL
from auditor.options import AuditRequest, FailOn
from auditor.report import Report, Unaudited


def check(  # noqa: PLR0913 - one parameter for each option
    models: list[str],
    *,
    target: str | None = None,
    form: Annotated[str | None, FORMATS] = None,
    output: Path | None = None,
    tensors: bool = False,
    depth: int | None = None,
    fail_on: FailOn = FailOn.WARNING,
    ignore: list[str] | None = None,
    engines: str | None = None,
    request: Annotated[dict[str, Any], AuditRequest],
    verbose: int = 0,
    quiet: bool = False,
) -> int:
    """Audit checkpoints: what is stored against what is expected."""
    if request.get("oracle"):
        require_oracle()
    chosen = chosen_format(form, output)
    options = AuditRequest(
        **request,
        model="",
        target=target,
        depth=counted_depth(chosen, depth),
        engines=engines_asked(engines),
        ignore=tuple(Ignore.parse(text) for text in ignore or ()),
        materials=chosen == MATERIALS,
    )
    if tensors:
        require_format_of_tensors(chosen)
    printed_form = chosen if output is None else TERMINAL
    has_table = printed_form == TERMINAL and (len(models) > 1 or models == ["-"])
    has_reports = not has_table or verbose or tensors or depth is not None
    show = Shown(
        depth=depth,
        verbose=verbose > 0,
        tensors=tensors,
        name_columns=None if has_reports else max(map(len, models)),
        quiet=quiet and printed_form == TERMINAL,
        target=target,
    )
    is_table_shown = not quiet and (chosen == TERMINAL or output is not None)
    if is_table_shown and not all(map(os.path.lexists, models)):
        _import_meanwhile("auditor.formats.terminal")
    if verbose and not quiet:
        print_log(verbose)
    tell = talk(quiet=quiet)
    outcomes: list[Report | Unaudited] = []
    code = CLEAN
    audited = outcomes_of(models, lambda model: audit(replace(options, model=model), say=tell))
    for outcome in print_outcomes(audited, printed_form, show, has_table=has_table):
        code = max(code, exit_code(outcome, fail_on))
        if output is not None:  # else models from a pipe may be too many to keep
            outcomes.append(outcome)
    if output is not None:
        written = write_reports(outcomes, chosen, output, show)
        code = max(exit_code(outcome, fail_on) for outcome in written)
    return code


def _import_meanwhile(name: str) -> None:
    """Import a module in a thread while the audit waits for replies; it is needed at the end."""
    with suppress(RuntimeError):  # no thread can be started: the module is imported at the end
        # No daemon: an interpreter that ends in the middle of an import may crash.
        Thread(target=import_module, args=(name,)).start()
