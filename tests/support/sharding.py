"""Sharded checkpoints on a disk, whole or spoiled: shards, their index, Git LFS pointers."""

import json
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path

from support.builders import safetensors_bytes

from auditor.containers.safetensors import parse_header
from auditor.findings import Finding, Severity
from auditor.report import Report, Unaudited
from auditor.tensors import DTYPE_BITS

Table = Mapping[str, tuple[str, Sequence[int]]]  # name: (dtype, shape)
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"


def bytes_of(table: Table) -> int:
    return sum(prod(shape) * DTYPE_BITS[dtype] // 8 for dtype, shape in table.values())


def shard_names(count: int, stem: str = "model", ending: str = "safetensors") -> list[str]:
    return [f"{stem}-{n:05}-of-{count:05}.{ending}" for n in range(1, count + 1)]


def on_disk(folder: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The tensors in the headers of all safetensors files of a folder."""
    table: dict[str, tuple[str, tuple[int, ...]]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        for tensor in parse_header(path.name, path.read_bytes()).tensors:
            assert tensor.dtype is not None
            assert tensor.shape is not None
            table[tensor.name] = (tensor.dtype, tensor.shape)
    return table


def write(path: Path, table: Table) -> Path:
    """A safetensors file with a hole where its data would be."""
    head = safetensors_bytes(table, data=False)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + bytes_of(table))
    return path


def sharded(
    folder: Path,
    table: Table,
    config: Mapping[str, object] | bytes | None,
    count: int = 2,
    *,
    index: str = INDEX,
    **metadata: object,
) -> Path:
    """The table in so many shards, dealt out in turn, and their index with the `metadata`."""
    folder.mkdir(parents=True, exist_ok=True)
    weight_map: dict[str, str] = {}
    for number, name in enumerate(shard_names(count)):
        own = {key: table[key] for key in list(table)[number::count]}
        write(folder / name, own)
        weight_map |= dict.fromkeys(own, name)
    whole = {"total_size": bytes_of(table), **metadata}
    content = {"metadata": whole, "weight_map": weight_map}
    (folder / index).write_text(json.dumps(content))
    if config is not None:
        content = config if isinstance(config, bytes) else json.dumps(config).encode()
        (folder / CONFIG).write_bytes(content)
    return folder


def pointer(path: Path) -> None:
    """The file as a clone without Git LFS has it."""
    size = path.stat().st_size
    path.write_text(
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize {size}\n"
    )


def reindexed(
    folder: Path, *, renamed: Mapping[str, str] | None = None, **metadata: object
) -> None:
    """The index with other totals, or with other names for some tensors."""
    path = folder / INDEX
    index = json.loads(path.read_text())
    index["metadata"] |= metadata
    names = renamed or {}
    index["weight_map"] = {
        names.get(name, name): file for name, file in index["weight_map"].items()
    }
    path.write_text(json.dumps(index))


def alarms(outcome: Report | Unaudited) -> list[Finding]:
    """The errors and warnings, of the parts as well."""
    every: Iterable[Finding] = (finding for one in outcome.every for finding in one.findings)
    return [finding for finding in every if finding.severity is not Severity.INFO]


def kinds(outcome: Report | Unaudited) -> list[str]:
    return sorted(finding.kind for finding in alarms(outcome))


def without_absence(outcome: Report | Unaudited) -> list[Finding]:
    """The other alarms if none of an index's files is there, which is an alarm."""
    every = alarms(outcome)
    others = [one for one in every if not one.reason.endswith("; every loader fails")]
    assert len(every) == len(others) + 1
    return others
