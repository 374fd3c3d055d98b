"""The table of hostile files: the tests', those that torch would run, and the large ones."""

import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from end_to_end.bad_input import test_gguf, test_snapshot, test_torch
from fuzz.hostile_files import around
from support.cases import PLACE, Case, build, cases_of
from support.torch_files import lengths, state

from hostile.beside import beside
from hostile.large import large


class Hostile(NamedTuple):
    """One input; `make` fills a place that is empty, and returns what is audited."""

    name: str
    make: Callable[[Path], Path]
    tensors: int = 0  # that it names or implies, where they are as many as the bounds allow


def table() -> Iterator[Hostile]:
    for path in sorted((PLACE / "bad_input").glob("*.yaml")):
        for case in cases_of(path):
            yield Hostile(f"{path.stem}: {case.name}", partial(_built, case))
    for row in test_torch.ROWS:
        yield Hostile(f"torch: {row.name}", partial(_made, row.spoil))
    for row in test_gguf.FILES:
        yield Hostile(f"gguf: {row.name}", partial(_made, row.spoil, name="m.gguf"))
    for name, (change, _) in test_snapshot.BYTES.items():
        yield Hostile(f"snapshot: {name}", partial(_recorded, change))
    for name, (change, _) in test_snapshot.VALUES.items():
        yield Hostile(f"snapshot: {name}", partial(_recorded, partial(_rewritten, change)))
    storages = [bytes(length) for length in lengths(test_torch.TENSORS)]
    for name, content in around(state(test_torch.TENSORS), storages).items():
        yield Hostile(f"bypass: {name}", partial(_made, test_torch.weights(content)))
    for name, make in beside():
        yield Hostile(f"beside: {name}", make)
    for name, make in large().items():
        yield Hostile(f"large: {name}", partial(_large, make), _tensors(name))


def _built(case: Case, place: Path) -> Path:
    build(case, place / "model")
    return place / case.keys.get("path", "model")


def _recorded(change: Callable[[bytes], bytes], place: Path) -> Path:
    path = place / "m.json"
    path.write_bytes(change(test_snapshot.good(place)))
    return path


def _rewritten(change: Callable[[Any], Any], content: bytes) -> bytes:
    document = json.loads(content)
    change(document)
    return json.dumps(document).encode()


def _made(make: Callable[[Path], object], place: Path, name: str = "input") -> Path:
    make(place / name)
    return place / name


def _tensors(name: str) -> int:
    """The number that the name says: `90,000 experts`, `a config of 95,000 tensors`."""
    found = re.search(r"[0-9,]{5,}", name)
    return int(found[0].replace(",", "")) if found else 0


def _large(make: Callable[[], Callable[[Path], object]], place: Path) -> Path:
    return _made(make(), place)
