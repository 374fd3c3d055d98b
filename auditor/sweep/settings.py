"""The settings of a sweep, read from a sweep.toml or from the command line."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct, field

from auditor.errors import UsageError
from auditor.messages import quoted
from auditor.streams import ListLine, lines_of
from auditor.sweep.policy import Policy
from auditor.sweep.selection import ModelSelection
from auditor.sweep.settings_file import Count, Text, read_settings_file

STORE = Path("sweep.sqlite")
REPORTS = Path("reports/nightly")
_MOST_BYTES = 1024 * 1024  # the largest size of a sweep.toml
_MOST_IDS = 512 * 1024 * 1024  # characters of a list of ids: three million have 90 MB


class Output(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The paths that a sweep writes to, and the number of nights to keep."""

    store: Path = STORE
    reports: Path | None = None  # with a folder for each night; None: only `audit report` writes
    keep: Count | None = None  # finished nights to keep in the store; None: all


class SweepSettings(Struct, frozen=True, kw_only=True):
    """The selections of a sweep, its limits and its output."""

    selections: tuple[ModelSelection, ...]
    policy: Policy = field(default_factory=Policy)
    output: Output = field(default_factory=Output)


class SelectionTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A [[selection]] table of a sweep.toml: it has either `ids` or other fields."""

    ids: Path | None = None  # a file with an id on each line
    author: Text | None = None
    filter: Text | tuple[Text, ...] = ()
    library: Text | None = None
    search: Text | None = None
    sort: Text | None = None
    top: Count | None = None


class _SweepFile(Struct, kw_only=True, forbid_unknown_fields=True):
    """The content of a sweep.toml."""

    selection: tuple[SelectionTable, ...] = ()
    policy: Policy = field(default_factory=Policy)
    output: Output = field(default_factory=Output)


def read_sweep_settings(path: Path) -> SweepSettings:
    """Read a sweep.toml; raise UsageError with file and key if it is invalid."""
    file = read_settings_file(path, _SweepFile, most_bytes=_MOST_BYTES)
    if not file.selection:
        raise UsageError(f"{quoted(str(path))} has no [[selection]], expected one at least")
    if SelectionTable() in file.selection:
        detail = "has an empty [[selection]], which is the whole Hub; add sort to select it"
        raise UsageError(f"{quoted(str(path))} {detail}")
    selections = tuple(map(selection_of, file.selection))
    return SweepSettings(selections=selections, policy=file.policy, output=file.output)


def folder_of(night: str) -> Path:
    """Return the reports' folder of a night; raise UsageError if no folder can have its name."""
    if not night.strip(".") or not night.isprintable() or any(char in night for char in "/\\"):
        raise UsageError(f"the night is {quoted(night)}, expected a name that a folder can have")
    return REPORTS / night


def ids_of(lines: Iterable[ListLine], what: str) -> tuple[str, ...]:
    """Return the model ids of a text with one id on each line.

    Blank lines, # comments and a byte order mark are skipped. Raise UsageError if a line or the
    text is too long, or if there is no id; `what` names the text in the message.
    """
    ids: dict[str, None] = {}
    size = 0  # characters
    for line in lines:
        size += len(line.text) + 1
        if line.fault:
            raise UsageError(f"{what}: {line.fault}")
        if size > _MOST_IDS:
            raise UsageError(f"{what} has more than {_MOST_IDS:,} characters; split the list")
        if model_id := line.text.partition("#")[0].strip().removeprefix("\ufeff"):
            ids[model_id] = None
    if not ids:
        raise UsageError(f"{what} has no model")
    return tuple(ids)


def ids_in(path: Path) -> tuple[str, ...]:
    """Return the model ids of a file with one id on each line."""
    try:
        with path.open(encoding="utf-8") as stream:
            return ids_of(lines_of(stream), quoted(str(path)))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{quoted(str(path))}, a list of ids, cannot be read: {error}") from None


def selection_of(table: SelectionTable, ids: Sequence[str] = ()) -> ModelSelection:
    """Return the selection by a table's filters or by ids; raise UsageError if both are given."""
    ids = ids_in(table.ids) if table.ids else ids
    filters = (table.author, table.filter, table.library, table.search, table.sort, table.top)
    if ids and any(filters):
        raise UsageError(
            "ids are combined with filters; give ids, or author, filter, search and top"
        )
    tags = (table.filter,) if isinstance(table.filter, str) else table.filter
    return ModelSelection(
        ids=tuple(ids),
        author=table.author,
        filters=(*tags, table.library) if table.library else tags,
        search=table.search,
        sort=table.sort or ("downloads" if table.top else None),
        top=table.top,
    )
