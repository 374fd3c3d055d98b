"""The code that all commands share: options, output, exit codes, errors and signals."""

import atexit
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn, TextIO

import typer

from auditor.audit.guard import TOO_LITTLE_MEMORY
from auditor.cli.signals import Stopped
from auditor.errors import FixError, PublishError, Reason, SourceError, StoreError, UsageError
from auditor.findings import Severity
from auditor.messages import meant, printable, quoted
from auditor.options import FailOn
from auditor.report import Report, Unaudited
from auditor.streams import WRITE_FAULTS, discard, lines_of
from auditor.writing import output_file, replacing, require_no_link

if TYPE_CHECKING:
    from auditor.downloader.waits import Wait

CLEAN, FINDINGS, USAGE, UNAUDITED = 0, 1, 2, 3
_PIPE_WIDTH = 80  # columns where stdout is not a terminal
_LEAST_WIDTH = 40  # columns of a report; a narrower terminal wraps lines


def say(line: str) -> None:
    """Escape a line and write it on standard error; callers need not escape it."""
    _stderr.put(f"audit: {printable(line)}\n")


def keep_quiet(_line: str) -> None:
    pass


def talk(*, quiet: bool) -> Callable[[str], None]:
    """Return the function that prints messages and waits during an audit."""
    if quiet:
        return keep_quiet
    if not is_terminal(sys.stderr):
        return say
    from auditor.downloader.waits import ProgressLines, Waits  # noqa: PLC0415 - --help needs neither

    return ProgressLines(say, Waits(_stderr.count_down), _stderr.show)


def print_log(verbose: int) -> None:
    """Print the records of the logger `auditor`.

    -v prints a line for each audit; -vv also each HTTP request as it ends: path, range, status,
    bytes, milliseconds and purpose.
    """
    import logging  # noqa: PLC0415 - --help needs none

    class Printer(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            say(record.getMessage())

    log = logging.getLogger("auditor")
    log.propagate = False
    log.setLevel(logging.DEBUG if verbose > 1 else logging.INFO)
    log.handlers = [Printer()]


class _Stderr:
    """A writer to standard error that can show a wait or progress in a terminal's last line."""

    _OVER = "\r\x1b[K"  # go to the start of the line and erase it

    def __init__(self) -> None:
        self._showing = False

    def put(self, text: str) -> None:
        over, self._showing = self._OVER if self._showing else "", False
        try:
            typer.echo(over + text, err=True, nl=False)
        except OSError:  # stderr is closed too; only the exit code remains
            discard(sys.stderr)

    def count_down(self, wait: "Wait | None") -> None:
        self.show(wait.shown if wait else None)

    def show(self, line: str | None) -> None:
        """Show a line that the next output replaces; None removes it."""
        columns = shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns
        self.put(printable(f"audit: {line}")[: columns - 1] if line else "")
        self._showing = line is not None


_stderr = _Stderr()


def outcomes_of(
    models: Sequence[str], audited: Callable[[str], Report | Unaudited]
) -> Iterator[Report | Unaudited]:
    """Audit each model in the given order; `-` stands for the lines of standard input.

    An invalid request has an Unaudited outcome. Raise UsageError if there is no model.
    """
    is_empty = True
    for name, fault in _requested(models):
        is_empty = False
        try:
            outcome = _bad_request(name, fault) if fault else audited(name)
        except UsageError as error:
            outcome = _bad_request(name, str(error))
        except MemoryError:
            outcome = Unaudited(
                requested=name, reason=Reason.TOO_LITTLE_MEMORY, detail=TOO_LITTLE_MEMORY
            )
        yield outcome
    if is_empty:
        raise UsageError("standard input has no model")


def _bad_request(name: str, detail: str) -> Unaudited:
    return Unaudited(requested=name, reason=Reason.BAD_REQUEST, detail=detail)


def _requested(models: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each model's name and a fault: the reason why the name cannot be read, else ""."""
    for model in models:
        if model != "-":
            yield model, ""
            continue
        is_empty = len(models) > 1
        try:
            for line in lines_of(sys.stdin):
                if line.fault or line.text:
                    is_empty = False
                    yield ("standard input", line.fault) if line.fault else (line.text, "")
        except OSError as error:
            yield "standard input", f"it cannot be read: {error.strerror or error}"
        else:
            if is_empty:
                yield "standard input", "it has no model"


def terminal() -> tuple[int, bool]:
    """Return the number of columns of standard output, and whether it shows colours."""
    width = max(_LEAST_WIDTH, shutil.get_terminal_size((_PIPE_WIDTH, 24)).columns)
    return width, is_terminal(sys.stdout) and not os.environ.get("NO_COLOR")


def today() -> str:
    """Return today's date in UTC, or that of SOURCE_DATE_EPOCH for reproducible reports."""
    text = os.environ.get("SOURCE_DATE_EPOCH", "")
    seconds = int(text) if re.fullmatch(r"[0-9]{1,11}", text) else None
    return time.strftime("%Y-%m-%d", time.gmtime(seconds))


def is_terminal(stream: TextIO) -> bool:
    """Whether a stream is a terminal that interprets escape codes."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def only_ascii(stream: TextIO) -> bool:
    """Whether a stream cannot encode the characters with which bars are drawn."""
    try:
        "\N{FULL BLOCK}\N{MIDDLE DOT}".encode(stream.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return True
    return False


def write(path: Path, content: bytes, folder: Path | None = None) -> None:
    with writing(path, folder) as file:
        file.write(content)


def put(text: str, output: Path | None = None) -> None:
    """Write text, which a format has escaped, to standard output or into a file."""
    if output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write(output, text.encode())


@contextmanager
def writing(path: Path, folder: Path | None = None) -> Iterator[BinaryIO]:
    """Open a file that replaces the old one when it is complete; end the command on an OSError.

    With `folder`, the user named the folder, and `path` is relative to it.
    """
    whole = path if folder is None else folder / path
    with refusing_writes(whole):
        if folder is not None:
            require_no_link(folder)
        with output_file(whole) if folder is None else replacing(whole) as file:
            yield file


@contextmanager
def refusing_writes(path: Path, *, is_named: bool = True) -> Iterator[None]:
    """End the command on an OSError in the block, which writes `path`, or files that it names."""
    try:
        yield
    except OSError as error:
        name = quoted(str(path if is_named else error.filename or path))
        fail(UNAUDITED, f"cannot write {name}: {error.strerror or error}")


# --- exits ------------------------------------------------------------------------------------


def exit_code(outcome: Report | Unaudited, fail_on: FailOn = FailOn.WARNING) -> int:
    """Return the exit code of an outcome: findings take precedence over unaudited components."""
    if isinstance(outcome, Report):
        otherwise = max((exit_code(part, FailOn.NEVER) for part in outcome.parts), default=CLEAN)
    elif outcome.reason is Reason.BAD_REQUEST:
        return USAGE
    else:
        otherwise = UNAUDITED
    if fail_on is FailOn.NEVER:
        return otherwise
    alarming = {Severity.ERROR} if fail_on is FailOn.ERROR else {Severity.ERROR, Severity.WARNING}
    alarms = any(finding.severity in alarming for one in outcome.every for finding in one.findings)
    residual = isinstance(outcome, Report) and outcome.residual
    return FINDINGS if alarms or residual else otherwise


@contextmanager
def guarded(model: str = "") -> Iterator[None]:
    """End the command with one line and the right exit code after an error or a signal."""
    try:
        yield
    except UsageError as error:
        fail(USAGE, str(error))
    except SourceError as error:
        fail(UNAUDITED, f"{model}{': ' if model else ''}{error.reason}: {error}")
    except (StoreError, FixError, PublishError) as error:
        fail(UNAUDITED, str(error))
    except Stopped as signal:
        # Threads may wait in a read for seconds. Their results are not needed, and every file that
        # was written is complete; processes that were started end.
        say("interrupted")
        atexit._run_exitfuncs()  # noqa: SLF001 - only this runs them without waiting for threads
        os._exit(signal.code)
    except BrokenPipeError:
        # The reader has closed the pipe (`audit ... | head`); flushing at exit would fail.
        discard(sys.stdout)
        raise typer.Exit(UNAUDITED) from None
    except OSError as error:
        if error.filename is not None or error.errno not in WRITE_FAULTS:
            raise  # not an error of standard output, so a bug
        discard(sys.stdout)
        fail(UNAUDITED, f"cannot write to standard output: {error.strerror or error}")


def fail(code: int, message: str) -> NoReturn:
    say(message)
    raise typer.Exit(code)


def say_reason(outcome: Report | Unaudited) -> None:
    """Print why a model was not audited."""
    if isinstance(outcome, Unaudited):
        near = _near_in_cache(outcome.requested) if outcome.reason is Reason.NOT_FOUND else ""
        say(f"{outcome.requested}: {outcome.reason}: {outcome.detail}{near}")


def _near_in_cache(requested: str) -> str:
    """Return ` (did you mean org/name?)` if a model of the local cache has a similar name."""
    from huggingface_hub import constants  # noqa: PLC0415 - only after a slip

    with suppress(OSError):
        folders = (path.name for path in Path(constants.HF_HUB_CACHE).iterdir())
        ids = (name.removeprefix("models--") for name in folders if name.startswith("models--"))
        return meant(requested, (one.replace("--", "/", 1) for one in ids))
    return ""


def engines_asked(text: str | None) -> tuple[str, ...]:
    """Return the engines in the value of `--for`; raise UsageError for an unknown one."""
    if text is None:
        return ()
    from auditor.audit.engine_verdicts import engines_named  # noqa: PLC0415 - few commands ask

    return engines_named(text)
