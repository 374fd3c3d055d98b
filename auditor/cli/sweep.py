"""The `audit sweep` command: options in, exit code out; auditor.sweep does the work."""

import gc
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import ValidationError, convert
from msgspec.structs import asdict, replace

from auditor.cli.console import (
    CLEAN,
    FINDINGS,
    UNAUDITED,
    USAGE,
    FailOn,
    TokenOption,
    is_terminal,
    keep_quiet,
    put,
    say,
    talk,
)
from auditor.cli.help import RARE
from auditor.cli.signals import Stopped
from auditor.downloader import reading_variables
from auditor.errors import SourceError, UsageError
from auditor.messages import quoted
from auditor.streams import lines_of

if TYPE_CHECKING:
    from auditor.sweep.progress import Progress
    from auditor.sweep.settings import SweepSettings


def sweep(  # noqa: PLR0913 - one parameter for each option
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[SOURCE]",
            show_default=False,
            help="A sweep.toml, a file of ids (one a line), or - for ids on standard input.",
        ),
    ] = None,
    *,
    author: Annotated[str | None, typer.Option(help="Models of this user or organisation.")] = None,
    tags: Annotated[
        list[str] | None,
        typer.Option("--filter", metavar="TAG", show_default=False, help="Models with this tag."),
    ] = None,
    library: Annotated[
        str | None, typer.Option(rich_help_panel=RARE, help="Models of this library.")
    ] = None,
    search: Annotated[
        str | None, typer.Option(rich_help_panel=RARE, help="Models with this in their id.")
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="The most models, the first by --sort.")
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(
            show_default="downloads with --top",
            rich_help_panel=RARE,
            help="downloads, likes, lastModified.",
        ),
    ] = None,
    store: Annotated[
        Path | None,
        typer.Option(metavar="FILE", show_default="sweep.sqlite", help="The file of the outcomes."),
    ] = None,
    night: Annotated[
        str | None, typer.Option(show_default="today, UTC", help="The name of the night.")
    ] = None,
    keep: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            show_default="all",
            rich_help_panel=RARE,
            help="Finished nights to keep; a report of changes needs two.",
        ),
    ] = None,
    max_requests: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="the Hub's RateLimit headers",
            rich_help_panel=RARE,
            help="Requests in five minutes.",
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="1",
            rich_help_panel=RARE,
            help="Processes that audit; more than one needs dask.",
        ),
    ] = None,
    at_once: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="64",
            rich_help_panel=RARE,
            help="Models under way in each process.",
        ),
    ] = None,
    deadline: Annotated[
        float | None,
        typer.Option(
            min=1,
            show_default="120",
            rich_help_panel=RARE,
            help="Seconds of network for each model.",
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="tcp://HOST:PORT",
            show_default=False,
            rich_help_panel=RARE,
            help="A Dask cluster whose workers audit; needs dask.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            rich_help_panel=RARE,
            help="Sweep even if a selection is empty or has lost models; replace a finished night.",
        ),
    ] = False,
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", help="Print how many requests it takes; only the Hub's lists are read."
        ),
    ] = False,
    fail_on: Annotated[
        FailOn | None,
        typer.Option(
            "--fail-on",
            metavar="SEVERITY",
            show_default=False,
            help="What exits with 1: error, warning (default), never.",
        ),
    ] = None,
    token: TokenOption = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print errors only.")] = False,
) -> None:
    """Audit many models of the Hub; fetch only those that changed.

    The same command resumes a stopped sweep. Exit codes: 0 all reconciled, 1 findings, 2 usage,
    3 some could not be audited; the worst wins.
    """
    with reading_variables():
        # 0.1 s that other commands do not need
        from auditor.sweep import runner  # noqa: PLC0415

    if not any((source, author, tags, library, search, top, sort)):
        raise UsageError(
            "no models are selected; give a sweep.toml, a file of ids, - for standard input, or "
            "--author, --filter, --library, --search, --top"
        )
    gc.enable()  # main turns collection off for commands that end before cycles matter
    settings = _settings(
        source,
        {
            "author": author,
            "filter": tuple(tags or ()),
            "library": library,
            "search": search,
            "top": top,
            "sort": sort,
        },
    )
    settings = _bounded(
        settings,
        {"store": store, "keep": keep},
        {
            "max_requests": max_requests,
            "processes": processes,
            "at_once": at_once,
            "deadline": deadline,
        },
    )
    tell = keep_quiet if quiet else say
    if plan:
        put(_planned(settings, token, _progress(quiet=quiet)))
        raise typer.Exit(CLEAN)
    try:
        swept = runner.sweep(
            settings,
            night=night,
            token=token,
            scheduler=scheduler,
            progress=_progress(quiet=quiet),
            force=force,
        )
    except SourceError as error:
        say(f"{error.reason}: {error}")
        raise typer.Exit(UNAUDITED) from None
    except Stopped:
        tell("outcomes are stored; the same command resumes the sweep")
        raise
    tell(runner.summary_line(swept))
    if crashed := runner.crash_notice(swept):
        say(crashed)
    if not settings.output.reports:
        chosen = ("--night", night) if night else ()
        tell(f"next: {shlex.join(('audit', 'report', str(settings.output.store), *chosen))}")
    if settings.output.reports:
        tell(_reported(settings.output.store, settings.output.reports, swept.night.night))
    alarm = fail_on or FailOn(settings.policy.fail_on or FailOn.WARNING)
    raise typer.Exit(sweep_exit_code(swept.alarms, alarm))


def _reported(store: Path, reports: Path, night: str) -> str:
    """Write the reports of a night, and return a line about them."""
    from auditor.sweep.reporting.night import Wanted, write_night  # noqa: PLC0415 - as above

    try:
        written = write_night(store, night=night, wanted=Wanted(folder=reports / night))
    except OSError as error:
        say(f"cannot write {quoted(str(error.filename or reports))}: {error.strerror or error}")
        raise typer.Exit(UNAUDITED) from None
    return f"wrote {quoted(str(written.folder))}"


def _planned(settings: "SweepSettings", token: str | None, progress: "Progress") -> str:
    """Return the estimated work of the sweep as a line."""
    from auditor.sweep import planning  # noqa: PLC0415 - for this option alone

    try:
        load = planning.expected_load(settings, token=token, progress=progress)
    except SourceError as error:
        say(f"{error.reason}: {error}")
        raise typer.Exit(UNAUDITED) from None
    return f"{load.in_words(settings.policy.max_requests)}\n"


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


def _settings(source: str | None, options: dict[str, Any]) -> "SweepSettings":
    from auditor.sweep import settings  # noqa: PLC0415 - as above

    if source and source.endswith(".toml"):
        if any(options.values()):
            raise UsageError(
                "a sweep.toml has its own selections; omit --author, --filter and the like"
            )
        return settings.read_sweep_settings(Path(source))
    ids: tuple[str, ...] = ()
    if source == "-":
        ids = settings.ids_of(lines_of(sys.stdin), "standard input")
    elif source:
        ids = settings.ids_in(Path(source))
    selection = settings.selection_of(settings.SelectionTable(**options), ids)
    return settings.SweepSettings(selections=(selection,))


def _bounded(
    settings: "SweepSettings", output: dict[str, Any], bounds: dict[str, Any]
) -> "SweepSettings":
    """Return the settings with the store and the limits that the command line sets."""
    output, bounds = (
        {name: value for name, value in options.items() if value is not None}
        for options in (output, bounds)
    )
    try:
        policy = convert(asdict(settings.policy) | bounds, type(settings.policy))
    except ValidationError as error:  # nan passes the range check of any option
        raise UsageError(str(error)) from None
    return replace(settings, policy=policy, output=replace(settings.output, **output))


def _progress(*, quiet: bool) -> "Progress":
    from auditor.downloader.waits import Talk  # noqa: PLC0415 - as above
    from auditor.sweep.progress import Progress  # noqa: PLC0415 - as above

    shows_line = is_terminal(sys.stderr) and not quiet
    return Progress(Talk.of(talk(quiet=quiet)), is_terminal=shows_line)
