"""Tables of TOML or JSON that a person writes, as Structs; an error names the file and the key.

A field's type says what its values are, and its description, for people, what was expected.
"""

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import fields

from auditor.errors import UsageError
from auditor.messages import described, quoted

Text = Annotated[str, Meta(min_length=1, description="a string")]
Count = Annotated[int, Meta(ge=1, description="a whole number from 1 on")]
PathBeside = Annotated[Path, Meta(description="a path")]  # relative to the folder of the file

Form = TypeVar("Form", bound=Struct)


def read_table(path: Path, most_bytes: int) -> object:
    """What a TOML file holds, or a .json; raises UsageError where it cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise UsageError(f"{quoted(str(path))} has more than {most_bytes:,} bytes")
        parse = json.loads if path.suffix == ".json" else tomllib.loads
        return parse(content.decode())
    except OSError as error:
        raise UsageError(f"{quoted(str(path))} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        language = "JSON" if path.suffix == ".json" else "TOML"
        raise UsageError(f"{quoted(str(path))} is not {language}: {error}") from None


def checked(path: Path, table: object, form: type[Form], *, part: str = "") -> Form:
    """A table of this file, or of a part of it; raises UsageError for what is wrong in it."""
    where = ": ".join(filter(None, (quoted(str(path)), part)))
    if not isinstance(table, dict):
        raise UsageError(f"{where}: expected a table, found {described(table)}")
    known = {field.name: field for field in fields(form)}
    for key in sorted(table.keys() - known.keys()):
        raise UsageError(f"{where}: {quoted(key)} is not known; keys are {', '.join(known)}")

    def beside(_: type, value: Any) -> Path:
        return path.parent / convert(value, Text)

    values = {}
    for key, field in known.items():
        if key not in table and not field.required:
            continue
        try:
            values[key] = convert(table.get(key), field.type, dec_hook=beside)
        except ValidationError:
            expected = _description(field.type)
            found = described(table[key]) if key in table else "nothing"
            raise UsageError(f"{where}: {key}: expected {expected}, found {found}") from None
    return form(**values)


def _description(kind: Any) -> str:
    """The description of a type, or of the first that is in it: of Text in `Text | None`."""
    parts = (kind, *get_args(kind))
    return str(next(meta.description for one in parts for meta in getattr(one, "__metadata__", ())))
