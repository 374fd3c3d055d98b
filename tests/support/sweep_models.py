"""Small models, most of them healthy, and eight faults to plant in the others."""

import json
from collections.abc import Callable, Iterator, Mapping

from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.hub import Hub

from auditor.sweep.store.reading import Result

Files = dict[str, bytes]
WEIGHTS, CONFIG = "model.safetensors", "config.json"


def healthy(number: int, target: str = "BertModel") -> Files:
    """A model as save_pretrained writes it; every number is another size."""
    changes = {"vocab_size": 11 + number % 7, "intermediate_size": 8 + number % 5}
    described = {one.name: ("F32", one.shape) for one in stored_by(expect(target, **changes))}
    name = f"sweep/m{number:05}"
    config = config_bytes(architectures=[target], dtype="float32", _name_or_path=name, **changes)
    return {CONFIG: config, WEIGHTS: safetensors_bytes(described)}


def _header(files: Files) -> dict[str, tuple[str, tuple[int, ...]]]:
    content = files[WEIGHTS]
    length = int.from_bytes(content[:8], "little")
    entries = json.loads(content[8 : 8 + length])
    return {name: (one["dtype"], tuple(one["shape"])) for name, one in entries.items()}


def _with(files: Files, described: Mapping[str, tuple[str, tuple[int, ...]]]) -> Files:
    return {**files, WEIGHTS: safetensors_bytes(described)}


def _missing(number: int) -> Files:
    files = healthy(number)
    header = _header(files)
    del header["encoder.layer.1.output.dense.weight"]
    return _with(files, header)


def _unexpected(number: int) -> Files:
    files = healthy(number)
    return _with(files, {**_header(files), "adapter.weight": ("F32", (3, 5))})


def _mismatched(number: int) -> Files:
    files = healthy(number)
    name = "encoder.layer.0.attention.self.query.weight"
    return _with(files, {**_header(files), name: ("F32", (2, 4))})


def _wrong_dtype(number: int) -> Files:
    files = healthy(number)
    return _with(files, {name: ("F16", shape) for name, (_, shape) in _header(files).items()})


def _duplicate(number: int) -> Files:
    files = healthy(number, "BertForMaskedLM")
    header = _header(files)
    embeddings = header["bert.embeddings.word_embeddings.weight"]
    return _with(files, {**header, "cls.predictions.decoder.weight": embeddings})


def _bad_header(number: int) -> Files:
    files = healthy(number)
    content = files[WEIGHTS]
    return {**files, WEIGHTS: content[:8] + b"[" + content[9:]}


def _bad_size(number: int) -> Files:
    files = healthy(number)
    return {**files, WEIGHTS: files[WEIGHTS][:-4]}


def _bad_config(number: int) -> Files:
    files = healthy(number)
    return {**files, CONFIG: files[CONFIG][:-1]}


FAULTS: Mapping[str, Callable[[int], Files]] = {
    "missing": _missing,
    "unexpected": _unexpected,
    "mismatched": _mismatched,
    "wrong-dtype": _wrong_dtype,
    "duplicate": _duplicate,
    "bad-header": _bad_header,
    "bad-size": _bad_size,
    "bad-config": _bad_config,
}


def planted(count: int) -> Iterator[tuple[str, Files, str | None]]:
    """Models, one in ten of them with a fault, each kind in turn: id, files, and the fault."""
    kinds = tuple(FAULTS)
    for number in range(count):
        kind = kinds[number // 10 % len(kinds)] if number % 10 == 3 else None
        files = FAULTS[kind](number) if kind else healthy(number)
        yield f"sweep/m{number:05}", files, kind


def add_planted(hub: Hub, count: int) -> None:
    """That many planted models, and a gated one."""
    for name, files, _ in planted(count):
        hub.add(name, files)
    hub.add("sweep/gated", healthy(1), gated="auto")


def alarms(result: Result) -> set[str]:
    """The kinds of a result's findings that are more than information."""
    found = result.outcome["findings"] if result.outcome else []
    return {one["kind"] for one in found if one["severity"] != "info"}
