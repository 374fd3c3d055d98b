"""The values that a followed pickle holds: plain ones, and records of imports and calls.

Strings, bytes, numbers, None, tuples and lists stand for themselves.
"""

from msgspec import Struct


class Global(Struct, frozen=True):
    """A class or a function that a pickle imports, under its name in Python 3."""

    module: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


class PickledDict(Struct, eq=False):
    """A dict's items in the order in which they were set; a key may occur twice."""

    pairs: list[tuple[object, object]]


class PickledSet(Struct, eq=False):
    """A set's items in the order in which they were added."""

    items: list[object]


class Call(Struct, eq=False):
    """The result of a call that nobody makes."""

    callee: object
    args: tuple[object, ...]
    pairs: list[tuple[object, object]] | None = None  # set as items
    state: object = None  # becomes its attributes
    has_state: bool = False


class Persistent(Struct, eq=False):
    """An object that the loader supplies for a key: one of torch's storages."""

    key: object


class PickleFault(Struct, frozen=True, kw_only=True):
    """The reason why a pickle was not followed to its end."""

    reason: str  # a verb first: "uses the opcode INST at byte 12"
    may_go_on: bool  # an unpickler may read on behind it, and run what was not followed
    truncated: bool = False  # the bytes end before the pickle does


class FollowedPickle(Struct, frozen=True, kw_only=True):
    """One pickle, followed to its end or to its fault."""

    value: object
    stop: int  # offset behind the pickle
    outside: tuple[str, ...]  # a line for each name that is not on the list
    refused: tuple[str, ...]  # harmless, and refused by torch.load(weights_only=True)
    persistent: tuple[Persistent, ...]
    fault: PickleFault | None = None


_KINDS: dict[type, str] = {
    Global: "an import",
    Persistent: "a storage",
    PickledDict: "a dict",
    PickledSet: "a set",
    Call: "the result of a call",
}


def kind(value: object) -> str:
    return _KINDS.get(type(value)) or f"a value of type {type(value).__name__}"


def is_key(value: object) -> bool:
    """Whether the value can be a key of a dict or be in a set, judged without hashing it."""
    if isinstance(value, tuple):
        return all(item is None or isinstance(item, str | bytes | int | float) for item in value)
    return value is None or isinstance(value, str | bytes | int | float)
