"""The table of hostile files: the tests', those that torch would run, and the large ones."""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from end_to_end.bad_input import (
    test_config,
    test_gguf,
    test_header,
    test_index,
    test_pipelines,
    test_snapshot,
    test_torch,
)
from fuzz.hostile_files import around
from support.bad_input.making import Row, sharded, whole
from support.torch_files import lengths, state

from hostile.beside import beside
from hostile.large import large


class Hostile(NamedTuple):
    """One input; `make` fills a place that is empty, and returns what is audited."""

    name: str
    make: Callable[[Path], Path]
    tensors: int = 0  # that it names or implies, where they are as many as the bounds allow


def table() -> Iterator[Hostile]:
    rows = (*test_config.TEXTS, *test_config.VALUES, *test_config.REFUSALS)
    yield from _of("config", rows, whole)
    yield from _of("header", (*test_header.FILES, *test_header.SPELT, *test_header.TRIED), whole)
    indexes = (*test_index.INDEXES, *test_index.LIES, *test_index.SHARDED, test_index.HUGE)
    yield from _of("index", indexes, sharded)
    yield from _of("torch", test_torch.ROWS, None)
    yield from _of("pipeline", test_pipelines.ROWS, None)
    for row in test_gguf.FILES:
        yield Hostile(f"gguf: {row.name}", partial(_file, row))
    for name, change, _ in test_snapshot.BYTES:
        yield Hostile(f"snapshot: {name}", partial(_recorded, change))
    for name, change, *_ in (*test_snapshot.VALUES, *test_snapshot.FAULTS):
        yield Hostile(f"snapshot: {name}", partial(_recorded, partial(_rewritten, change)))
    for name, text in test_header.HOSTILE:
        yield Hostile(f"name: {name}", partial(_named, text))
    storages = [bytes(length) for length in lengths(test_torch.TENSORS)]
    for name, content in around(state(test_torch.TENSORS), storages).items():
        yield Hostile(f"bypass: {name}", partial(_made, test_torch.weights(content)))
    for name, make in beside():
        yield Hostile(f"beside: {name}", make)
    for name, make in large().items():
        yield Hostile(f"large: {name}", partial(_large, make), _tensors(name))


def _of(kind: str, rows: tuple[Row, ...], good: Callable[[Path], Path] | None) -> Iterator[Hostile]:
    for row in rows:
        yield Hostile(f"{kind}: {row.name}", partial(_spoilt, row, good))


def _spoilt(row: Row, good: Callable[[Path], Path] | None, place: Path) -> Path:
    folder = place / "input"
    if good is not None:
        good(folder)
    row.spoil(folder)
    return folder


def _file(row: Row, place: Path) -> Path:
    row.spoil(place / "m.gguf")
    return place / "m.gguf"


def _recorded(change: Callable[[bytes], bytes], place: Path) -> Path:
    path = place / "m.json"
    path.write_bytes(change(test_snapshot.good(place)))
    return path


def _rewritten(change: Callable[[Any], Any], content: bytes) -> bytes:
    document = json.loads(content)
    change(document)
    return json.dumps(document).encode()


def _named(text: str, place: Path) -> Path:
    return _made(partial(_with_name, text), place)


def _with_name(text: str, folder: Path) -> None:
    whole(folder)
    test_header.holding(test_header.with_tensors(text))(folder)


def _made(make: Callable[[Path], object], place: Path) -> Path:
    make(place / "input")
    return place / "input"


def _tensors(name: str) -> int:
    """The number that the name says: `90,000 experts`, `a config of 95,000 tensors`."""
    found = re.search(r"[0-9,]{5,}", name)
    return int(found[0].replace(",", "")) if found else 0


def _large(make: Callable[[], Callable[[Path], object]], place: Path) -> Path:
    return _made(make(), place)
