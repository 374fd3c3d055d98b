"""SweepSettings: what a sweep.toml, or the command line, asks of a sweep."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from auditor.errors import UsageError
from auditor.messages import described, quoted
from auditor.sweep.policy import Policy
from auditor.sweep.selection import ModelSelection

STORE = Path("sweep.sqlite")
REPORTS = Path("reports/nightly")
_MOST_BYTES = 1024 * 1024  # of a sweep.toml
_MOST_IDS = 512 * 1024 * 1024  # bytes of a list of ids: three million have 90 MB


class Output(Struct, frozen=True, kw_only=True):
    """Where a sweep writes, and how much of it stays."""

    store: Path = STORE
    reports: Path | None = None  # a folder for each night in it; None: `audit report` writes them
    keep: int | None = None  # finished nights that stay in the store; None: all of them


class SweepSettings(Struct, frozen=True, kw_only=True):
    """What is swept, within which bounds, and where it is written."""

    selections: tuple[ModelSelection, ...]
    policy: Policy = field(default_factory=Policy)
    output: Output = field(default_factory=Output)
    fail_on: str | None = None  # error, warning or never; None: the command line says


def read_sweep_settings(path: Path) -> SweepSettings:
    """The settings in a sweep.toml; raises UsageError, naming file and key, for what is wrong.

    [[selection]] has ids (a file, relative to the sweep.toml), or author, filter, library, search,
    sort and top; [policy] the fields of Policy and fail_on; [output] store, reports and keep.
    """
    table = _parsed(path)
    _known(path, table, {"selection", "policy", "output"}, "a sweep.toml")
    chosen = table.get("selection", [])
    if not isinstance(chosen, list) or not chosen:
        raise UsageError(f"{quoted(str(path))}: no [[selection]] says which models to sweep")
    policy = dict(_section(path, table, "policy"))
    fail_on = policy.pop("fail_on", None)
    if fail_on not in {None, "error", "warning", "never"}:
        raise _wrong(path, "policy.fail_on", "error, warning or never", fail_on)
    return SweepSettings(
        selections=tuple(_selection(path, one) for one in chosen),
        policy=_policy(path, policy),
        output=_output(path, _section(path, table, "output")),
        fail_on=fail_on,
    )


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


def _parsed(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
        if len(content) > _MOST_BYTES:
            raise UsageError(f"{quoted(str(path))} has more than {_MOST_BYTES:,} bytes")
        return tomllib.loads(content.decode())
    except OSError as error:
        raise UsageError(f"{quoted(str(path))} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{quoted(str(path))} is not TOML: {error}") from None


def _known(path: Path, table: Mapping[str, Any], names: Iterable[str], what: str) -> None:
    strange = sorted(set(table) - set(names))
    if strange:
        there = ", ".join(sorted(names))
        raise UsageError(f"{quoted(str(path))}: {what} has no {quoted(strange[0])}; it has {there}")


def _section(path: Path, table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = table.get(name, {})
    if not isinstance(found, dict):
        raise UsageError(f"{quoted(str(path))}: {name} is {described(found)}, not a [{name}] table")
    return found


def _selection(path: Path, table: object) -> ModelSelection:
    if not isinstance(table, dict):
        raise UsageError(f"{quoted(str(path))}: a selection is {described(table)}, not a table")
    _known(path, table, _SELECTION, "a [[selection]]")
    given = dict(table)
    top = _count(path, "selection.top", given.pop("top", None))
    tags = given.pop("filter", [])
    tags = tags if isinstance(tags, list) else [tags]
    filters = [_text(path, "selection.filter", tag) for tag in tags]
    texts = {name: _text(path, f"selection.{name}", value) for name, value in given.items()}
    listed = texts.pop("ids", None)
    ids = ids_in(path.parent / listed) if listed else ()
    found = selection_of(ids=ids, filters=filters, top=top, **texts)
    if found is None:
        detail = "a [[selection]] that chooses nothing would be the whole Hub: say sort"
        raise UsageError(f"{quoted(str(path))}: {detail}")
    return found


_SELECTION = ("author", "filter", "ids", "library", "search", "sort", "top")


def _policy(path: Path, table: Mapping[str, Any]) -> Policy:
    _known(path, table, ("fail_on", *Policy.__struct_fields__), "[policy]")
    for name, value in table.items():
        if name == "companions":
            if not isinstance(value, bool):
                raise _wrong(path, f"policy.{name}", "true or false", value)
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise _wrong(path, f"policy.{name}", "a number above 0", value)
        if isinstance(value, float) and name != "deadline":
            raise _wrong(path, f"policy.{name}", "a whole number", value)
    return Policy(**table)


def _output(path: Path, table: Mapping[str, Any]) -> Output:
    _known(path, table, set(Output.__struct_fields__), "[output]")
    given = dict(table)
    keep = _count(path, "output.keep", given.pop("keep", None))
    places = {
        name: path.parent / _text(path, f"output.{name}", value) for name, value in given.items()
    }
    return Output(**places, keep=keep)


def _count(path: Path, key: str, value: object) -> int | None:
    if value is not None and (type(value) is not int or value < 1):
        raise _wrong(path, key, "a number from 1 on", value)
    return value


def _text(path: Path, key: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(path, key, "a string", value)
    return value


def _wrong(path: Path, key: str, expected: str, found: object) -> UsageError:
    return UsageError(f"{quoted(str(path))}: {key}: expected {expected}, found {described(found)}")
