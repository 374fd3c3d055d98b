"""What following a pickle finds: plain values, and records of what loading it would do.

Strings, bytes, numbers, None, tuples and lists stand for themselves.
"""

import re

from msgspec import Struct

_HALF = re.compile("[\ud800-\udfff]")


class Global(Struct, frozen=True):
    """What `from module import name` would give."""

    module: str
    name: str


class PickledDict(Struct, eq=False):
    """A dict, as it was filled: a key may be anything, and may be there twice."""

    pairs: list[tuple[object, object]]


class PickledSet(Struct, eq=False):
    """A set, as it was filled."""

    items: list[object]
    frozen: bool


class Octets(Struct, frozen=True, eq=False):
    """A bytearray, of which nothing depends on what it holds."""

    length: int


class Call(Struct, eq=False):
    """What a call would give, and what would then be done to it."""

    how: str  # REDUCE, INST and OBJ call; NEWOBJ and NEWOBJ_EX call __new__
    callee: object
    args: object  # a tuple wherever the pickle can be loaded
    pairs: list[tuple[object, object]] | None = None  # set as items
    state: object = None  # given to __setstate__, or to __dict__
    built: bool = False  # whether there is a state


class Persistent(Struct, eq=False):
    """What the loader's own persistent_load would give for a key: torch's storages."""

    key: object


class Ran(Struct, frozen=True, kw_only=True):
    """What following one pickle found; up to its fault, where it has one."""

    value: object
    stop: int  # offset behind the pickle
    globals: tuple[Global, ...]  # each once, in the order of the pickle
    calls: tuple[Call, ...]
    persistent: tuple[Persistent, ...]
    fault: str | None = None  # a verb first: "pops from an empty stack at byte 12"
    truncated: bool = False  # the fault is that the bytes end before the pickle does


_KINDS: dict[type, str] = {
    Global: "an import",
    Persistent: "a storage",
    PickledDict: "a dict",
    PickledSet: "a set",
    Octets: "a bytearray",
    Call: "what a call returns",
}


def kind(value: object) -> str:
    return _KINDS.get(type(value)) or f"a value of type {type(value).__name__}"


def is_class(value: object) -> bool:
    """Whether it is a class with its source, which the legacy form keeps as it does storages."""
    return (
        isinstance(value, Persistent)
        and isinstance(value.key, tuple)
        and value.key[:1] == ("module",)
    )


def is_text(text: str) -> bool:
    """Whether a string is whole characters: a pickle may hold halves of some (surrogates)."""
    return text.isascii() or not _HALF.search(text)
