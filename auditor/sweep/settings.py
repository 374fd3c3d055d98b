"""SweepSettings: what a sweep.toml, or the command line, asks of a sweep."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from auditor.errors import UsageError
from auditor.messages import quoted
from auditor.sweep.policy import Policy
from auditor.sweep.selection import ModelSelection
from auditor.sweep.settings_file import Count, PathBeside, Text, checked, read_table

STORE = Path("sweep.sqlite")
REPORTS = Path("reports/nightly")
_MOST_BYTES = 1024 * 1024  # of a sweep.toml
_MOST_IDS = 512 * 1024 * 1024  # bytes of a list of ids: three million have 90 MB


class Output(Struct, frozen=True, kw_only=True):
    """Where a sweep writes, and how much of it stays."""

    store: PathBeside = STORE
    reports: PathBeside | None = None  # a folder for each night in it; None: `audit report` does
    keep: Count | None = None  # finished nights that stay in the store; None: all of them


class SweepSettings(Struct, frozen=True, kw_only=True):
    """What is swept, within which bounds, and where it is written."""

    selections: tuple[ModelSelection, ...]
    policy: Policy = field(default_factory=Policy)
    output: Output = field(default_factory=Output)


class _SweepFile(Struct, kw_only=True):
    """A sweep.toml."""

    selection: Annotated[
        tuple[Any, ...], Meta(min_length=1, description="a [[selection]] of the models to sweep")
    ]
    policy: Any = {}  # as Policy has it
    output: Any = {}  # as Output has it


class _Selection(Struct, kw_only=True):
    """One [[selection]] of a sweep.toml: ids, or some of the others."""

    author: Text | None = None
    filter: Annotated[Text | list[Text], Meta(description="a string or a list of them")] = []
    ids: PathBeside | None = None  # a list of them
    library: Text | None = None
    search: Text | None = None
    sort: Text | None = None
    top: Count | None = None


def read_sweep_settings(path: Path) -> SweepSettings:
    """The settings in a sweep.toml; raises UsageError, naming file and key, for what is wrong."""
    file = checked(path, read_table(path, _MOST_BYTES), _SweepFile)
    return SweepSettings(
        selections=tuple(_selection(path, at, one) for at, one in enumerate(file.selection, 1)),
        policy=checked(path, file.policy, Policy, part="policy"),
        output=checked(path, file.output, Output, part="output"),
    )


def _selection(path: Path, at: int, table: object) -> ModelSelection:
    part = f"selection {at}"
    asked = checked(path, table, _Selection, part=part)
    found = selection_of(
        ids=ids_in(asked.ids) if asked.ids else (),
        author=asked.author,
        filters=[asked.filter] if isinstance(asked.filter, str) else asked.filter,
        library=asked.library,
        search=asked.search,
        sort=asked.sort,
        top=asked.top,
    )
    if found is None:
        detail = "a [[selection]] that chooses nothing would be the whole Hub: say sort"
        raise UsageError(f"{quoted(str(path))}: {part}: {detail}")
    return found


def ids_of(lines: Iterable[str]) -> tuple[str, ...]:
    """The ids of a list: one a line; blank lines and # comments are passed over."""
    found = (line.partition("#")[0].strip() for line in lines)
    return tuple(dict.fromkeys(filter(None, found)))


def ids_in(path: Path) -> tuple[str, ...]:
    """The ids of a file."""
    try:
        if path.stat().st_size > _MOST_IDS:
            raise UsageError(f"{quoted(str(path))} has more than {_MOST_IDS:,} bytes")
        with path.open(encoding="utf-8") as lines:
            ids = ids_of(lines)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{quoted(str(path))}, a list of ids, cannot be read: {error}") from None
    if not ids:
        raise UsageError(f"{quoted(str(path))} holds no model")
    return ids


def selection_of(  # noqa: PLR0913 - one keyword for each way to choose
    *,
    ids: Sequence[str] = (),
    author: str | None = None,
    filters: Sequence[str] = (),
    library: str | None = None,
    search: str | None = None,
    sort: str | None = None,
    top: int | None = None,
) -> ModelSelection | None:
    """One selection of these; None where nothing was asked for."""
    asked = any((author, filters, library, search, sort, top))
    if ids and asked:
        raise UsageError("ids are taken as they are: give them, or author, filter, search and top")
    if not ids and not asked:
        return None
    tags = (*filters, library) if library else tuple(filters)
    by = sort or ("downloads" if top else None)
    return ModelSelection(
        ids=tuple(ids), author=author, filters=tags, search=search, sort=by, top=top
    )
