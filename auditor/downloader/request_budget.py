"""What rules over the requests of many audits: a sweep has one, a single audit needs none."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class Turn(NamedTuple):
    """Leave to make one request."""

    path: str
    first: float = 0.0  # when it went before the others of its kind; 0: it is one of many
    waited: float = 0.0  # seconds


class Governor(Protocol):
    """Lets requests to the Hub through, and hears what came of them; called from several threads.

    Every `admit` is followed by one `note`, or by one `lost`.
    """

    def admit(self, path: str) -> Turn:
        """Before a request: waits for its turn; raises SourceError if it gets no turn."""

    def note(self, turn: Turn, status: int, headers: Mapping[str, str]) -> None:
        """The answer has begun."""

    def lost(self, turn: Turn) -> None:
        """The request ended without an answer."""

    def held(self, seconds: float) -> None:
        """Before a wait that a server asked for: it is too busy, or has answered too often."""

    def check(self, received: int) -> None:
        """After a piece of a body, with all bytes so far: raises SourceError for too many."""


class Unruled:
    """The governor of an audit that stands alone: Patience is enough for that."""

    def admit(self, path: str) -> Turn:
        return Turn(path)

    def note(self, turn: Turn, status: int, headers: Mapping[str, str]) -> None: ...

    def lost(self, turn: Turn) -> None: ...

    def held(self, seconds: float) -> None: ...

    def check(self, received: int) -> None: ...
