"""The page's blocks of JSON: written item by item, to a file of no name until the page is made."""

import json
import tempfile
from collections.abc import Callable
from hashlib import sha256
from shutil import copyfileobj
from typing import IO, Any, Self


class Block:
    """A JSON array that is written item by item."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the page
        self.length = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, item: Any) -> int:
        """Add an item; its place."""
        self._file.write(b"[\n" if not self.length else b",\n")
        self._file.write(ascii_json(item).encode("ascii"))
        self.length += 1
        return self.length - 1

    def copy(self, file: IO[bytes]) -> None:
        self._file.write(b"\n]" if self.length else b"[]")
        self._file.seek(0)
        copyfileobj(self._file, file)


class Pool(Block):
    """A JSON array of what many models share: each item once, by a digest of 16 bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._places: dict[bytes, int] = {}

    def place(
        self, item: list[Any], key: bytes | None = None, rest: Callable[[], list[Any]] = list
    ) -> int:
        """The place of an item; `rest` makes what is costly of it, where it is new."""
        digest = sha256(ascii_json(item).encode() if key is None else key).digest()[:16]
        if digest not in self._places:
            self._places[digest] = self.add([*item, *rest()])
        return self._places[digest]


def ascii_json(value: Any) -> str:
    """JSON for a script element: ASCII, and nothing in it ends the element or begins a comment."""
    return json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
