"""Records whose comparison ignores some of their fields, such as the folder of a file."""

from typing import ClassVar, Literal, NamedTuple

from msgspec import Struct


class Checked(NamedTuple):
    """The rules' answer about one property of a model, beside their findings."""

    state: Literal["compared", "absent", "unneeded", "unread", "incomparable"]
    text: str  # what was compared, or why it was not


class Observation(Struct, frozen=True):
    """A record whose comparison and hash ignore the fields in `_aside`."""

    _aside: ClassVar[tuple[str, ...]] = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._counted() == other._counted()

    def __hash__(self) -> int:
        return hash(self._counted())

    def _counted(self) -> tuple[object, ...]:
        names = (name for name in self.__struct_fields__ if name not in self._aside)
        return tuple(getattr(self, name) for name in names)
