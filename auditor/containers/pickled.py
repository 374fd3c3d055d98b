"""What following a pickle finds: plain values, and records of what loading it would do.

Strings, bytes, numbers, None, tuples and lists stand for themselves.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Global:
    """What `from module import name` would give."""

    module: str
    name: str


@dataclass(slots=True, eq=False)
class Pairs:
    """A dict, as it was filled: a key may be anything, and may be there twice."""

    pairs: list[tuple[object, object]]


@dataclass(slots=True, eq=False)
class Call:
    """What a call would give, and what would then be done to it."""

    how: str  # REDUCE, INST and OBJ call; NEWOBJ and NEWOBJ_EX call __new__
    callee: object
    args: object  # a tuple wherever the pickle can be loaded
    pairs: list[tuple[object, object]] | None = None  # set as items
    state: object = None  # given to __setstate__, or to __dict__
    built: bool = False  # whether there is a state


@dataclass(slots=True, eq=False)
class Persistent:
    """What the loader's own persistent_load would give for a key: torch's storages."""

    key: object


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What following one pickle found; up to its fault, where it has one."""

    value: object
    stop: int  # offset behind the pickle
    globals: tuple[Global, ...]  # each once, in the order of the pickle
    calls: tuple[Call, ...]
    persistent: tuple[Persistent, ...]
    fault: str | None = None  # a verb first: "pops from an empty stack at byte 12"
    truncated: bool = False  # the fault is that the bytes end before the pickle does


def kind(value: object) -> str:
    match value:
        case Global():
            return "an import"
        case Persistent():
            return "a storage"
        case Pairs():
            return "a dict"
        case Call():
            return "what a call returns"
        case _:
            return f"a value of type {type(value).__name__}"
