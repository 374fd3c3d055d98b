"""Packed checkpoints in shards that cannot all be read: what their index tells of the others."""

import json
import shutil
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from support.sharding import (
    INDEX,
    alarms,
    bytes_of,
    kinds,
    on_disk,
    pointer,
    reindexed,
    shard_names,
    without_absence,
    write,
)

from auditor import Report
from auditor.audit.pipeline import audit

_SHARDS = 3


def resharded(folder: Path, into: Path) -> Path:
    """The checkpoint of a folder, dealt out to shards without data, and their index."""
    table = on_disk(folder)
    shutil.copytree(folder, into, ignore=shutil.ignore_patterns("*.safetensors", INDEX))
    weight_map: dict[str, str] = {}
    for number, name in enumerate(shard_names(_SHARDS)):
        own = {key: table[key] for key in sorted(table)[number::_SHARDS]}
        write(into / name, own)
        weight_map |= dict.fromkeys(own, name)
    content = {"metadata": {"total_size": bytes_of(table)}, "weight_map": weight_map}
    (into / INDEX).write_text(json.dumps(content))
    return into


def hides_what_it_cannot_show(folder: Path) -> None:
    """Of a clean checkpoint nothing is missing, whichever of its shards are pointers.

    Each parameter is hidden behind the one file that holds it.
    """
    with TemporaryDirectory() as place:
        here = Path(place)
        whole = audit(str(resharded(folder, here / "whole")))
        assert isinstance(whole, Report)
        assert (kinds(whole), whole.residual) == ([], 0)
        behind = [_behind(folder, here / name, [name], whole) for name in shard_names(_SHARDS)]
        every = _behind(folder, here / "all", shard_names(_SHARDS), whole)
    assert sum(map(len, behind)) == len(every)
    assert set(chain.from_iterable(behind)) == every


def its_total_is_told(folder: Path, *, exact: bool = True) -> None:
    """The bytes of shards that are pointers, or not there, are known, and a note adds them up.

    To the byte, if it is `exact`: no text of any length is in a tensor.
    """
    with TemporaryDirectory() as place:
        here = resharded(folder, Path(place) / "m")
        total = bytes_of(on_disk(here))
        first, *others = shard_names(_SHARDS)
        pointer(here / first)
        _judge(here, total, exact=exact)
        for name in others:
            pointer(here / name)
        _judge(here, total, exact=exact)
        for name in shard_names(_SHARDS):
            (here / name).unlink()
        _judge(here, total, exact=exact)


def _judge(folder: Path, total: int, *, exact: bool) -> None:
    for stated in (total, *((total + 1, total - 1) if exact else ()), 2 * total, 0):
        reindexed(folder, total_size=stated)
        report = audit(str(folder))
        told = [note for note in report.notes if note.startswith(f"total_size {stated:,} = ")]
        others = alarms(report) if any(folder.glob("*.safetensors")) else without_absence(report)
        kinds_there = {one.kind for one in others}
        found = {"bad-index", "wrong-dtype"} & kinds_there  # F64 takes twice F32
        right = stated == total
        assert bool(found) is not right, (stated, total, alarms(report))
        assert len(told) == right or found == {"wrong-dtype"}
        assert any("total size to the byte" in line for line in report.unchecked) is not exact


def _behind(folder: Path, into: Path, files: list[str], whole: Report) -> set[str]:
    """The names that are hidden where these files are pointers."""
    resharded(folder, into)
    for name in files:
        pointer(into / name)
    report = audit(str(into))
    assert isinstance(report, Report)
    assert kinds(report) == ["bad-header"] * len(files), [
        (one.kind, one.reason, one.names[:4]) for one in alarms(report)
    ]
    assert report.residual == 0
    found = [one for one in report.findings if one.kind == "bad-header"]
    assert {one.file for one in found} == set(files)
    hidden = [tensor for one in found for tensor in one.hidden]
    assert sum(one.parameters for one in found) == sum(
        tensor.elements for tensor in hidden if tensor.role == "parameter"
    )
    assert whole.observed is not None
    assert report.observed is not None
    assert report.observed.parameters + sum(one.parameters for one in found) == (
        whole.observed.parameters
    )
    return {tensor.name for tensor in hidden}
