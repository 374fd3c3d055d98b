"""JSON arrays that are written item by item."""

from collections.abc import Callable
from hashlib import sha256
from typing import IO, Any

from auditor.formats.json_values import json_text


class JsonArray:
    """An array in ASCII, written to a file that the caller closes."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.length = 0
        self._places: dict[bytes, int] = {}

    def add(self, item: Any) -> int:
        """Add an item and return its index."""
        self.file.write(b",\n" if self.length else b"[\n")
        self.file.write(ascii_json(item).encode("ascii"))
        self.length += 1
        return self.length - 1

    def place(self, key: Any, make: Callable[[], Any] | None = None) -> int:
        """Return the index of an item; an item whose key is already there is not added again.

        Keys are compared by digests of 16 bytes. The item is the key, or what `make` returns: it is
        called for new keys only.
        """
        digest = sha256(ascii_json(key).encode()).digest()[:16]
        if digest not in self._places:
            self._places[digest] = self.add(make() if make else key)
        return self._places[digest]

    def close(self) -> None:
        """Write the end of the array."""
        self.file.write(b"\n]" if self.length else b"[]")


def ascii_json(value: Any) -> str:
    """Return JSON for a script element: ASCII, without `<` that could end it or open a comment."""
    return json_text(value).replace("<", "\\u003c")
