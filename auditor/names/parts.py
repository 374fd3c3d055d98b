"""The parts of a name: its folder, its modules and the numbers in it."""

import re
from collections.abc import Iterator

_NUMBER = re.compile(r"\d+")
MOST_DIGITS = 6  # digits of a number in a tensor's name; no model has a million layers or experts


def folder_of(path: str) -> str:
    """Return the folder of a path with a slash at its end; "" for a file without folder."""
    return path[: path.rfind("/") + 1]


def file_name(path: str) -> str:
    """Return the last part of a path."""
    return path[path.rfind("/") + 1 :]


def parent(name: str) -> str:
    """Return the module that contains a tensor or module: `bert.encoder` -> `bert` -> ""."""
    return name.rpartition(".")[0]


def modules_above(name: str) -> Iterator[str]:
    """Yield the modules that contain a tensor or module, from the complete model ("") down."""
    parts = name.split(".")
    return (".".join(parts[:length]) for length in range(len(parts)))


def number_of(segment: str) -> int | None:
    """Return a segment of a tensor's name as a number; None if it is not a short decimal number."""
    is_number = segment.isascii() and segment.isdecimal() and len(segment) <= MOST_DIGITS
    return int(segment) if is_number else None


def number_in_list(name: str, module_list: str) -> int | None:
    """Return the index in a module list that a name contains, else None: 3 for `h.3.ln` in `h`."""
    at = f".{name}".find(f".{module_list}.")
    return number_of(name[at + len(module_list) + 1 :].partition(".")[0]) if at >= 0 else None


def module_kind(name: str) -> str:
    """Return the module name of a tensor without its layer, such as `self_attn.q_proj`."""
    inside = _NUMBER.sub("#", name).rpartition("#.")[2]
    return inside.rpartition(".")[0] or inside
