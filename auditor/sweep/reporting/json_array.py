"""JSON arrays that are written item by item, as models pass."""

from collections.abc import Callable
from hashlib import sha256
from typing import IO, Any

from auditor.formats.json_values import json_text


class JsonArray:
    """An array in ASCII, in a file that somebody else closes."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.length = 0
        self._places: dict[bytes, int] = {}

    def add(self, item: Any) -> int:
        """Add an item; its place."""
        self.file.write(b",\n" if self.length else b"[\n")
        self.file.write(ascii_json(item).encode("ascii"))
        self.length += 1
        return self.length - 1

    def place(self, key: Any, make: Callable[[], Any] | None = None) -> int:
        """The place of an item that is kept once, by a digest of 16 bytes.

        Where making it is costly, it is made of a key that is new.
        """
        digest = sha256(ascii_json(key).encode()).digest()[:16]
        if digest not in self._places:
            self._places[digest] = self.add(make() if make else key)
        return self._places[digest]

    def close(self) -> None:
        """Write the end."""
        self.file.write(b"\n]" if self.length else b"[]")


def ascii_json(value: Any) -> str:
    """JSON for a script element: ASCII, and nothing in it ends the element or begins a comment."""
    return json_text(value).replace("<", "\\u003c")
