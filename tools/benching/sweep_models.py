"""Thousands of single-file models in a folder: sparse weights, and pages of the list API."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.builders import Described, safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by

AUTHOR = "bench"
PAGE = 1000  # models a page, as the Hub has them
_TARGETS = ("BertModel", "BertForMaskedLM", "BertForSequenceClassification")


def write(folder: Path, count: int, bases: int) -> None:
    """So many models, of so many bases: those of one base differ by their names alone.

    Sizes are those of bert-base (12 layers, 197 to 206 tensors, a header of 22 kB); every base has
    a vocabulary of its own, so that no header and no config of one is another's.
    """
    made = [_base(number) for number in range(bases)]
    for number in range(count):
        config, head, size = made[number % bases]
        place = folder / "models" / f"{AUTHOR}/m{number:05}"
        place.mkdir(parents=True)
        named = {**config, "_name_or_path": f"/home/somebody/runs/{number}"}
        (place / "config.json").write_text(json.dumps(named, indent=2))
        with (place / "model.safetensors").open("wb") as file:
            file.write(head)
            file.truncate(size)
    (folder / "pages").mkdir()
    for start, page in _pages(count):
        (folder / "pages" / f"{start}.json").write_text(json.dumps(page))


def ids(count: int) -> tuple[str, ...]:
    return tuple(f"{AUTHOR}/m{number:05}" for number in range(count))


def _base(number: int) -> tuple[dict[str, Any], bytes, int]:
    """The config, the header, and how many bytes the file has."""
    changes = {
        "vocab_size": 30_000 + number,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "max_position_embeddings": 512,
    }
    target = _TARGETS[number % len(_TARGETS)]
    described: Described = {
        tensor.name: (tensor.dtype, tensor.shape) for tensor in stored_by(expect(target, **changes))
    }
    head = safetensors_bytes(described, metadata={"format": "pt"}, data=False)
    ends = [end for _, end in _offsets(head)]
    config: dict[str, Any] = json.loads(
        config_bytes(architectures=[target], dtype="float32", **changes)
    )
    return config, head, len(head) + max(ends)


def _offsets(head: bytes) -> Iterator[tuple[int, int]]:
    for name, entry in json.loads(head[8:]).items():
        if name != "__metadata__":
            start, end = entry["data_offsets"]
            yield start, end


def _pages(count: int) -> Iterator[tuple[int, list[dict[str, Any]]]]:
    siblings = [{"rfilename": "config.json"}, {"rfilename": "model.safetensors"}]
    for start in range(0, count, PAGE):
        numbers = range(start, min(start + PAGE, count))
        yield (
            start,
            [
                {
                    "_id": _commit(number)[:24],
                    "id": f"{AUTHOR}/m{number:05}",
                    "sha": _commit(number),
                    "siblings": siblings,
                }
                for number in numbers
            ],
        )


def _commit(number: int) -> str:
    return hashlib.sha1(str(number).encode(), usedforsecurity=False).hexdigest()
