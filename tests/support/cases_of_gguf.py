"""The GGUF file of a case: a model's tensors and metadata as llama.cpp's converter writes them."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.gguf_files import ARRAY, BOOL, F32, STRING, U32, Pair, Tensor, gguf_bytes
from support.gguf_models import Values, expectation, metadata, tensors

_KEYS = {"file", "metadata", "drop", "rename", "shape", "add"}


def write_gguf(keys: Mapping[str, Any], config: Mapping[str, Any], folder: Path) -> None:
    """Write the file; raise ValueError if `keys` has a key that nobody reads."""
    if unknown := keys.keys() - _KEYS:
        raise ValueError(f"{', '.join(sorted(unknown))} is not a key of gguf")
    pairs: list[Pair] = []
    table: dict[str, Tensor] = {}
    if "architectures" in config:
        given = {key: value for key, value in config.items() if value is not None}
        values = Values(config["model_type"], given)
        pairs = metadata(values)
        stored = tensors(values, expectation(values, config["architectures"][0]))
        table = {one.name: one for one in stored}
    changes = keys.get("metadata", {})
    pairs = [pair for pair in pairs if pair[0] not in changes]
    pairs += [_pair(key, value) for key, value in changes.items() if value is not None]
    if "drop" in keys:
        table = {name: one for name, one in table.items() if not re.search(keys["drop"], name)}
    for pattern, new in keys.get("rename", {}).items():
        renamed = [one._replace(name=re.sub(pattern, new, one.name)) for one in table.values()]
        table = {one.name: one for one in renamed}
    for pattern, shape in keys.get("shape", {}).items():
        names = [name for name in table if re.search(pattern, name)]
        table |= {name: table[name]._replace(shape=shape) for name in names}
    table |= {name: Tensor(name, shape) for name, shape in keys.get("add", {}).items()}
    (folder / keys.get("file", "m.gguf")).write_bytes(gguf_bytes(pairs, [*table.values()]))


def _pair(key: str, value: Any) -> Pair:
    """Return a pair of the metadata; a number of tokens stands for their list."""
    if key == "tokenizer.ggml.tokens":
        return key, ARRAY, (STRING, ["a"] * value)
    kinds = {bool: BOOL, str: STRING, float: F32, int: U32}
    return key, kinds[type(value)], value
