"""Parse hand-written TOML or JSON files into msgspec Structs; errors name the file and the key."""

import json
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from msgspec import Meta, Struct, ValidationError, convert

from auditor.errors import UsageError
from auditor.formats.text import cut_middle
from auditor.messages import quoted

Text = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1, le=2**53)]
Workers = Annotated[int, Meta(ge=1, le=10_000)]  # processes, threads, or models under way

_LONGEST = 300  # characters of an error message, which may contain a long key of the file

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
