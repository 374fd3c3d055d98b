"""Clean checkpoints in a folder, and the tables' rows of what is done to them."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import pytest
from support.bad_input.running import FINDINGS, Run
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by

from auditor.tensors import DTYPE_BITS

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
SHARDS = tuple(f"model-{number:05}-of-00003.safetensors" for number in (1, 2, 3))

TENSORS = {tensor.name: (tensor.dtype, tensor.shape) for tensor in stored_by(expect("BertModel"))}
GOOD_CONFIG = config_bytes(architectures=["BertModel"])
GOOD_WEIGHTS = safetensors_bytes(TENSORS)

POINTER = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\n"
    b"size 411553788\n"
)
PAGE = b"<!DOCTYPE html>\n<html><head><title>404</title></head><body>Not found</body></html>\n"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One kind of bad input: what is done to a clean folder, and what is said of it."""

    name: str
    spoil: Callable[[Path], object]
    code: int
    kind: str | None  # of the finding; None: the outcome is no report
    says: str  # a regular expression: the finding's reason, or the end of the line on stderr


def found(name: str, spoil: Callable[[Path], object], kind: str, says: str) -> Row:
    """A row whose audit ends with a finding."""
    return Row(name=name, spoil=spoil, code=FINDINGS, kind=kind, says=says)


def cases(rows: Iterable[Row]) -> list:
    return [pytest.param(row, id=row.name) for row in rows]


def assert_says(ran: Run, row: Row) -> None:
    assert_ended(ran, row.code, row.says if row.kind is None else (row.kind, row.says))


def assert_ended(ran: Run, code: int, says: str | tuple[str, str]) -> None:
    """The exit code, and the one line that says why: the last on stderr, or a finding's reason."""
    assert ran.code == code, ran.stderr or ran.outcome["findings"]
    if isinstance(says, str):
        assert re.search(says, ran.last), ran.last
        return
    kind, reason = says
    findings = ran.outcome["findings"]
    assert ran.stderr == ""
    assert any(one["kind"] == kind and re.search(reason, one["reason"]) for one in findings), (
        findings
    )
    assert not any("\n" in one["reason"] for one in findings)


def whole(folder: Path) -> Path:
    """A folder with one weight file, which audits clean."""
    folder.mkdir(parents=True)
    (folder / CONFIG).write_bytes(GOOD_CONFIG)
    (folder / WEIGHTS).write_bytes(GOOD_WEIGHTS)
    return folder


def sharded(folder: Path) -> Path:
    """A folder with three shards and their index, which audits clean."""
    folder.mkdir(parents=True)
    (folder / CONFIG).write_bytes(GOOD_CONFIG)
    for shard, tensors in split().items():
        (folder / shard).write_bytes(safetensors_bytes(tensors))
    (folder / INDEX).write_bytes(index())
    return folder


def split() -> dict[str, dict[str, tuple[str, tuple[int, ...]]]]:
    """Shard -> its tensors."""
    third = -(-len(TENSORS) // len(SHARDS))
    pairs = list(TENSORS.items())
    return {shard: dict(pairs[at * third : (at + 1) * third]) for at, shard in enumerate(SHARDS)}


def weight_map() -> dict[str, str]:
    return {name: shard for shard, tensors in split().items() for name in tensors}


def index(changes: Mapping[str, object] | None = None, **metadata: object) -> bytes:
    """A true index, with other entries in its weight_map or other metadata."""
    size = sum(prod(shape) * DTYPE_BITS[dtype] // 8 for dtype, shape in TENSORS.values())
    entries = {**weight_map(), **(changes or {})}
    return json.dumps(
        {"metadata": {"total_size": size, **metadata}, "weight_map": entries}
    ).encode()
