"""Indexes that are broken or lie, and shards that are not what their index says."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.bad_input.making import (
    INDEX,
    PAGE,
    POINTER,
    SHARDS,
    Row,
    assert_says,
    cases,
    found,
    index,
    sharded,
    split,
    weight_map,
)
from support.bad_input.running import CLEAN, UNAUDITED
from support.builders import safetensors_bytes

WORDS = "embeddings.word_embeddings.weight"  # in the first shard
POOLER = "pooler.dense.bias"  # in the last one
FILE = "^model.safetensors.index.json"
DEEP = b"[" * 100_000 + b"]" * 100_000


def holding(content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / INDEX).write_bytes(content)


def bad(name: str, content: bytes, says: str) -> Row:
    return found(name, holding(content), "bad-index", f"{FILE}{says}")


def placed(name: str, shard: object, says: str) -> Row:
    """An index that places one tensor elsewhere."""
    return bad(name, index({WORDS: shard}), says)


def totals(name: str, says: str, **metadata: object) -> Row:
    return found(name, holding(index(**metadata)), "bad-index", says)


def shard(name: str, change: Callable[[Path], object], kind: str, says: str) -> Row:
    """The second shard is changed."""
    return found(name, lambda folder: change(folder / SHARDS[1]), kind, says)


def written(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def with_others(folder: Path, tensors: dict[str, str]) -> None:
    """The last shard with more tensors: name -> dtype."""
    more = {name: (dtype, (2,)) for name, dtype in tensors.items()}
    (folder / SHARDS[2]).write_bytes(safetensors_bytes({**split()[SHARDS[2]], **more}))


def without(folder: Path) -> None:
    """The last shard without its last tensor."""
    kept = {name: value for name, value in split()[SHARDS[2]].items() if name != POOLER}
    (folder / SHARDS[2]).write_bytes(safetensors_bytes(kept))


def renamed_shard(folder: Path) -> None:
    (folder / SHARDS[1]).rename(folder / "model-2.safetensors")


INDEXES = (
    bad("an HTML page", PAGE, " is not JSON: .*DOCTYPE"),
    bad("a Git LFS pointer", POINTER, " is a Git LFS pointer to a file of"),
    bad("100,000 levels deep", b"[" * 100_000, " is nested 100,000 levels deep"),
    bad(
        "metadata 100,000 levels deep",
        index().replace(b'"total_size"', b'"a": %s, "total_size"' % DEEP),
        " is nested 100,002 levels deep",
    ),
    bad(
        "a shard 100,000 levels deep",
        index({WORDS: "a"}).replace(b'"a"', DEEP),
        " is nested 100,002 levels deep",
    ),
    placed("a shard above the folder", "../../etc/passwd", r": the shard '\.\./.*' leaves the"),
    placed("control characters", "a\x1b[31m\n.safetensors", r": the shard 'a\\x1b.* has control"),
)
LIES = (
    found(
        "no such shard",
        holding(index({WORDS: "gone.safetensors"})),
        "bad-index",
        "that file does not exist",
    ),
    found("another shard", holding(index({WORDS: SHARDS[2]})), "bad-index", f"in {SHARDS[0]}"),
    found("a tensor of no shard", holding(index({"a": SHARDS[0]})), "bad-index", "no shard holds"),
    found("a tensor not named", lambda f: with_others(f, {"a": "F32"}), "bad-index", "not name it"),
    found("a tensor in two", lambda f: with_others(f, {WORDS: "F32"}), "duplicate", SHARDS[0]),
    found("a shard lacks one", without, "missing", "."),
    found("a shard lacks one, index", without, "bad-index", "no shard holds it"),
    found(
        "a shard renamed",
        renamed_shard,
        "bad-index",
        f"13 tensors in {SHARDS[1]}, and that file does not",
    ),
    totals("total_size too small", "^total_size is 1, the shards hold 1,792 bytes", total_size=1),
    totals("total_size of 600 digits", r"total_size is 1000.*\(601 digits\)", total_size=10**600),
    found(
        "total_parameters wrong",
        holding(index(total_parameters=449)),
        "wrong-total",
        "^total_parameters is 449, the shards",
    ),
)
SHARDED = (
    shard("an empty shard", written(b""), "bad-size", f"^{SHARDS[1]} is empty: 0 bytes"),
    shard(
        "a shard not fetched", written(POINTER), "bad-header", f"^{SHARDS[1]} is a Git LFS pointer"
    ),
    shard("a shard of HTML", written(PAGE), "bad-header", f"^{SHARDS[1]} is an HTML or XML page"),
    shard(
        "a byte too few", shortened, "bad-size", f"^{SHARDS[1]} is truncated: its header implies"
    ),
    shard(
        "gone", Path.unlink, "bad-index", f"13 tensors in {SHARDS[1]}, and that file does not exist"
    ),
)
HUGE = Row(
    name="100 MB",
    spoil=lambda folder: (folder / INDEX).write_bytes(index() + b" " * 10**8),
    code=UNAUDITED,
    kind=None,
    says="too-large: .*index.json' has .* bytes, expected at most 33,554,432",
)
TRUE = (
    ("total_size with a zero behind its point", index(total_size=1792.0)),
    ("no metadata", json.dumps({"weight_map": weight_map()}).encode()),
    ("metadata null", json.dumps({"metadata": None, "weight_map": weight_map()}).encode()),
    ("keys that nobody knows", index(mergekit_version="0.0.6")),
)


@pytest.mark.parametrize("row", cases((*INDEXES, *LIES, *SHARDED, HUGE)))
def test_a_bad_index_ends_with_a_reason(row, audit, tmp_path):
    folder = sharded(tmp_path / "input")
    row.spoil(folder)
    assert_says(audit(str(folder), "--format", "json"), row)


@pytest.mark.parametrize("content", [pytest.param(content, id=name) for name, content in TRUE])
def test_an_index_with_fewer_or_more_keys_is_clean(content, audit, tmp_path):
    folder = sharded(tmp_path / "input")
    holding(content)(folder)
    ran = audit(str(folder), "--format", "json")
    assert (ran.code, ran.stderr) == (CLEAN, "")
