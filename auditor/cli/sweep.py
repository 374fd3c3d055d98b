"""The `audit sweep` command: options in, exit code out; auditor.sweep does the work."""

import gc
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import ValidationError, convert
from msgspec.structs import asdict, replace

from auditor.cli.console import (
    CLEAN,
    FINDINGS,
    UNAUDITED,
    USAGE,
    is_terminal,
    keep_quiet,
    put,
    refusing_writes,
    say,
    talk,
)
from auditor.cli.signals import Stopped
from auditor.downloader import reading_variables
from auditor.downloader.model_argument import store_address
from auditor.errors import UsageError
from auditor.messages import quoted
from auditor.options import FailOn
from auditor.streams import lines_of
from auditor.sweep.settings import (
    Output,
    Policy,
    SelectionTable,
    SweepSettings,
    ids_in,
    ids_of,
    read_sweep_settings,
    selection_of,
)

if TYPE_CHECKING:
    from auditor.sweep.progress import Progress


def sweep(  # noqa: PLR0913 - one parameter for each option
    source: str | None = None,
    *,
    selection: Annotated[dict[str, Any], SelectionTable],
    output: Annotated[dict[str, Any], Output],
    night: str | None = None,
    policy: Annotated[dict[str, Any], Policy],
    scheduler: str | None = None,
    force: bool = False,
    plan: bool = False,
    fail_on: FailOn | None = None,
    token: str | None = None,
    quiet: bool = False,
) -> int:
    """Audit many models of the Hub; fetch only those that changed.

    The same command resumes a stopped sweep. Exit codes: 0 all clean, 1 findings, 2 usage,
    3 some could not be audited; the worst wins.
    """
    with reading_variables():
        # 0.1 s that other commands do not need
        from auditor.sweep import runner  # noqa: PLC0415

    if not (source or selection):
        raise UsageError(
            "no models are selected; give a sweep.toml, a file of ids, - for standard input, or "
            "--author, --filter, --library, --search, --top"
        )
    gc.enable()  # main turns collection off for commands that end before cycles matter
    settings = _settings(source, selection, output, policy)
    tell = keep_quiet if quiet else say
    if plan:
        from auditor.sweep import planning  # noqa: PLC0415 - for this option alone

        load = planning.expected_load(settings, token=token, progress=_progress(quiet=quiet))
        put(f"{load.in_words(settings.policy.max_requests)}\n")
        return CLEAN
    try:
        swept = runner.sweep(
            settings,
            night=night,
            token=token,
            scheduler=scheduler,
            progress=_progress(quiet=quiet),
            force=force,
        )
    except Stopped:
        tell("outcomes are stored; the same command resumes the sweep")
        raise
    tell(runner.summary_line(swept))
    if crashed := runner.crash_notice(swept):
        say(crashed)
    if folder := settings.output.reports:
        from auditor.sweep.reporting.night import Wanted, write_night  # noqa: PLC0415 - as above

        wanted = Wanted(folder=folder / swept.night.night)
        with refusing_writes(folder, is_named=False):
            written = write_night(settings.output.store, night=swept.night.night, wanted=wanted)
        tell(f"wrote {quoted(str(written.folder))}")
    else:
        chosen = ("--night", night) if night else ()
        tell(f"next: {shlex.join(('audit', 'report', str(settings.output.store), *chosen))}")
    alarm = fail_on or FailOn(settings.policy.fail_on or FailOn.WARNING)
    return sweep_exit_code(swept.alarms, alarm)


def sweep_exit_code(alarms: Any, fail_on: FailOn) -> int:
    """Return the worst exit code of all models; findings of an unaudited model take precedence."""
    alarming, unseen = 0, alarms.unaudited
    for fails, count, blind in (
        (fail_on is not FailOn.NEVER, alarms.errors, alarms.blind_errors),
        (fail_on is FailOn.WARNING, alarms.warnings, alarms.blind_warnings),
    ):
        if fails:
            alarming += count
        else:
            unseen += blind
    codes = (
        FINDINGS if alarming else CLEAN,
        USAGE if alarms.bad_requests else CLEAN,
        UNAUDITED if unseen else CLEAN,
    )
    return max(codes)


def _settings(
    source: str | None,
    selection: dict[str, Any],
    output: dict[str, Any],
    policy: dict[str, Any],
) -> SweepSettings:
    """Return the settings of a sweep.toml, or of ids or filters, with what the options change."""
    if source and source.endswith(".toml"):
        if selection:
            raise UsageError(
                "a sweep.toml has its own selections; omit --author, --filter and the like"
            )
        settings = read_sweep_settings(Path(source))
    else:
        ids: tuple[str, ...] = ()
        address = store_address(source or "")
        if source and not address:
            is_stream = source == "-"
            ids = (
                ids_of(lines_of(sys.stdin), "standard input") if is_stream else ids_in(Path(source))
            )
        table = convert(selection, SelectionTable)
        chosen = selection_of(replace(table, address=address.url) if address else table, ids)
        settings = SweepSettings(selections=(chosen,))
    try:
        limits = convert(asdict(settings.policy) | policy, Policy)
    except ValidationError as error:  # a number that is too large
        raise UsageError(str(error)) from None
    return replace(settings, policy=limits, output=replace(settings.output, **output))


def _progress(*, quiet: bool) -> "Progress":
    from auditor.downloader.waits import ProgressLines  # noqa: PLC0415 - as above
    from auditor.sweep.progress import Progress  # noqa: PLC0415 - as above

    shows_line = is_terminal(sys.stderr) and not quiet
    return Progress(ProgressLines.of(talk(quiet=quiet)), is_terminal=shows_line)
