"""The settings of a sweep, from a sweep.toml or the command line; the parser of settings files."""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from msgspec import Meta, Struct, ValidationError, convert, field
from msgspec.structs import asdict

from auditor.downloader.model_list import PAGE
from auditor.errors import Reason, UsageError
from auditor.formats.text import cut_middle
from auditor.messages import quoted
from auditor.streams import ListLine, lines_of

Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1, le=2**53)]
Workers = Annotated[int, Meta(ge=1, le=10_000)]  # processes, threads, or models under way

_LONGEST = 300  # characters of an error message, which may contain a long key of the file
_EXPAND = (("expand", "sha"), ("expand", "siblings"), ("expand", "lastModified"))

STORE = Path("sweep.sqlite")
REPORTS = Path("reports/nightly")
_MOST_BYTES = 1024 * 1024  # the largest size of a sweep.toml
_MOST_IDS = 512 * 1024 * 1024  # characters of a list of ids: three million have 90 MB

# Reasons that may be temporary, so the model is tried again the next night: errors of the network,
# of the Hub or of this program, and gated models, whose licence may have been accepted since.
PASSING = frozenset(
    {
        Reason.OFFLINE,
        Reason.UNREACHABLE,
        Reason.TIMED_OUT,
        Reason.RATE_LIMITED,
        Reason.SERVER_ERROR,
        Reason.BAD_RESPONSE,
        Reason.COMMIT_MOVED,
        Reason.DENIED,
        Reason.GATED,
        Reason.NOT_FOUND,
        Reason.NO_REVISION,
        Reason.UNREADABLE,
        Reason.TOO_LITTLE_MEMORY,
        Reason.CRASHED,
    }
)


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of a sweep, and the severity at which it fails."""

    # Processes that audit; if more than one, they are Dask workers on this machine.
    processes: Workers = 1

    # Models under way in each process. If each waits for two answers of 0.15 s, 64 are 210 a
    # second; the Hub's largest plan allows 166.
    at_once: Workers = 64

    # Shards under way in each process, over all models.
    shards: Workers = 16

    # Limit on requests in five minutes; if None, only the Hub's RateLimit headers limit them.
    max_requests: Count | None = None

    # Seconds of network for one model; waiting for the budget does not count. DeepSeek-V3's 163
    # shards take 20 s at 8 requests a second, the rate of a free token.
    deadline: Annotated[float, Meta(gt=0, le=1_000_000)] = 120.0

    # Bytes to read of one model. The longest known headers, of DeepSeek-V3, have 11 MB.
    max_bytes: Count = 64 * 1024 * 1024

    # Whether to read companion files, too: up to three more requests for each model.
    companions: bool = False

    # Serving engines, and releases such as transformers==5.0.0, whose verdict is stored, too.
    engines: tuple[
        Annotated[
            str,
            Meta(pattern=r"^(vllm|mlx|llama\.cpp|convert-hf-to-gguf|transformers[=<>!]=?[0-9.]+)$"),
        ],
        ...,
    ] = ()

    # The lowest severity at which the sweep fails; None: the command line's default.
    fail_on: Annotated[str, Meta(pattern="^(error|warning|never)$")] | None = None

    @property
    def hopeless(self) -> float:
        """The seconds without any outcome after which the models under way are abandoned.

        It is long because the oracle takes up to 120 s for each model, one model at a time.
        """
        return 5 * self.deadline


class ModelSelection(Struct, frozen=True, kw_only=True):
    """A choice of models: by ids, or by the filters of the Hub's list API."""

    ids: tuple[str, ...] = ()  # each with an optional @revision
    author: str | None = None
    filters: tuple[str, ...] = ()  # tags; a library is a tag, too
    search: str | None = None
    sort: str | None = None  # downloads, likes, lastModified, ...: in descending order
    top: int | None = None  # the largest number of models
    address: str | None = None  # of a folder of a store: every model in it

    @property
    def described(self) -> Mapping[str, object]:
        """The selection as a store records it; ids are replaced by their number and digest."""
        fields = {name: value for name, value in asdict(self).items() if value}
        if self.ids:
            digest = sha256("\n".join(self.ids).encode()).hexdigest()[:12]
            fields["ids"] = f"{len(self.ids)} ids, {digest}"
        return fields

    @property
    def query(self) -> tuple[tuple[str, str], ...]:
        """The query parameters of the Hub's list API for this selection."""
        options = (("author", self.author), ("search", self.search), ("sort", self.sort))
        parameters = [(name, value) for name, value in options if value]
        size = min(self.top or PAGE, PAGE)
        filters = (("filter", tag) for tag in self.filters)
        return (*parameters, *filters, ("limit", str(size)), *_EXPAND)


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
    """A [[selection]] table of a sweep.toml: it has `ids`, an `address`, or other fields."""

    ids: Path | None = None  # a file with an id on each line
    author: Text | None = None
    filter: Text | tuple[Text, ...] = ()
    library: Text | None = None
    search: Text | None = None
    sort: Text | None = None
    top: Count | None = None
    address: Text | None = None


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
    if table.address and (ids or any(filters)):
        raise UsageError("an address of a store selects its models; omit ids, author and the like")
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
        address=table.address and table.address.rstrip("/"),
    )


# --- parsing of settings files --------------------------------------------------------------------

Form = TypeVar("Form", bound=Struct)


def read_settings_file(path: Path, form: type[Form], *, most_bytes: int) -> Form:
    """Parse a TOML or .json file into the Struct `form`; paths in it are relative to its folder.

    Raise UsageError if the file cannot be read, is too long or does not match the Struct.
    """
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise UsageError(f"{quoted(str(path))} cannot be read: {error.strerror}") from None
    return parse_settings(content, path, form, most_bytes=most_bytes)


def parse_settings(content: bytes, path: Path, form: type[Form], *, most_bytes: int) -> Form:
    """Parse the content of a settings file, as `read_settings_file` does."""
    name = quoted(str(path))

    def relative_path(_: type, value: object) -> Path:
        if not value or not isinstance(value, str) or "\0" in value:
            raise TypeError("Expected a path")
        return path.parent / value

    try:
        if len(content) > most_bytes:
            raise UsageError(f"{name} has more than {most_bytes:,} bytes")
        parse = json.loads if path.suffix == ".json" else tomllib.loads
        return convert(parse(content.decode("utf-8-sig")), form, dec_hook=relative_path)
    except ValidationError as error:
        raise UsageError(f"{name}: {_detail(str(error), form)}") from None
    except (ValueError, RecursionError) as error:
        language = "JSON" if path.suffix == ".json" else "TOML"
        raise UsageError(f"{name} is not {language}: {error}") from None


def _detail(error: str, form: Any) -> str:
    """Return msgspec's error message with the key's path, like `$.selection[0].top`.

    If a key is unknown, the message also lists the known keys.
    """
    detail = cut_middle(error, _LONGEST)
    if not error.startswith("Object contains unknown field"):
        return detail
    _, at, path = error.rpartition(" - at `$")  # an unknown top-level key has no path
    for key in re.findall(r"\.(\w+)", path if at else ""):
        hint = get_type_hints(form).get(key, form)
        form = next(iter(get_args(hint)), hint)  # for a list of tables, the type of one table
    return f"{detail}; known are {', '.join(getattr(form, '__struct_fields__', ()))}"
