"""Law 12: a snapshot of whatever can be audited gives the same report, whatever its size."""

import base64
import json
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import deepseek_v3, pipelines, small_adapters
from support.bad_input.making import POINTER
from support.builders import framed, safetensors_bytes
from support.checkpoints import config_bytes, spoilt
from support.examples import each_night, examples, one_in
from support.gguf_files import Tensor, gguf_bytes, model_pairs
from support.torch_files import legacy_bytes, lengths, state, torch_bytes

import auditor
from auditor import Report, Unaudited
from auditor.checkpoint.selecting import with_companions
from auditor.checkpoint.snapshot import Source
from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader.fetching import fetch
from auditor.errors import SourceError
from auditor.formats import as_json

Files = Mapping[str, bytes]
Table = Mapping[str, tuple[str, tuple[int, ...]]]

# --- any checkpoint ---------------------------------------------------------------------------


def torch_legacy(table: Table) -> bytes:
    data = b"".join(struct.pack("<q", length) + bytes(length) for length in lengths(table))
    return legacy_bytes(state(table, legacy=True), map(str, range(len(table))), data)


def gguf(table: Table) -> bytes:
    pairs = model_pairs("bert", {"block_count": 2, "embedding_length": 4}, tokens=11)
    return gguf_bytes(pairs, [Tensor(name, shape, 0) for name, (_, shape) in table.items()])


def of_torch(table: Table) -> Table:
    return {name: ("F32", shape) for name, (_, shape) in table.items()}


WRITERS = {
    "model.safetensors": safetensors_bytes,
    "pytorch_model.bin": lambda table: torch_bytes(of_torch(table)),
    "pytorch_model.pt": lambda table: torch_legacy(of_torch(table)),
    "model.gguf": gguf,
}
SHARDED = ("model.safetensors", "pytorch_model.bin")
BROKEN = (b"", POINTER, b"\xff" * 30, b"\x09" + bytes(7) + b"not JSON!", b"\x80\x02.", b"GGUF")
# Beside the weights: what is listed, and what is read of it.
BESIDE = {
    "README.md": b"",
    "generation_config.json": b'{"eos_token_id": 99999}',
    "tokenizer_config.json": b'{"auto_map": {"AutoTokenizer": ["code.Tokenizer", null]}}',
    "chat_template.jinja": b"{{",
    "quantize_config.json": b'{"bits": 4, "group_size": 128}',
    "é\u2028.txt": b"x",
    "optimizer.pt": b"x",
    "model.fp16.safetensors": b"x",
}


@st.composite
def checkpoints(draw) -> Files:
    """A BERT, spoilt or whole, in any container: one file or shards, some broken or not there."""
    one = draw(spoilt())
    table = {tensor.name: (tensor.dtype, tensor.shape) for tensor in one.tensors}
    config = config_bytes(architectures=[one.declared], **one.changes)
    files = {"config.json": draw(st.sampled_from([config, config, config[:-1], b"\xff", b"{}"]))}
    name = draw(st.sampled_from(sorted(WRITERS)))
    write = WRITERS[name]
    count = draw(st.integers(1, 3))
    if count > 1 and name in SHARDED:
        files |= shards(name, write, table, count)
    else:
        files[name] = write(table)
    weights = [name for name in files if name != "config.json"]
    for broken in draw(st.sets(st.sampled_from(weights), max_size=1)):
        files[broken] = draw(st.sampled_from(BROKEN))
    shards_or_index = [name for name in weights if len(weights) > 1]
    ways = [set(), set(), set(shards_or_index[:1]), set(shards_or_index[:-1])]  # the index is last
    for gone in draw(st.sampled_from(ways)):
        del files[gone]
    if draw(st.booleans()):
        files.setdefault("pytorch_model.bin", torch_bytes(of_torch(table)))
    beside = draw(st.sets(st.sampled_from(sorted(BESIDE)), max_size=2))
    return {name: BESIDE[name] for name in beside} | files


def shards(name: str, write: Any, table: Table, count: int) -> Files:
    stem, _, ending = name.rpartition(".")
    names = [f"{stem}-{n:05}-of-{count:05}.{ending}" for n in range(1, count + 1)]
    parts = {each: dict(list(table.items())[n::count]) for n, each in enumerate(names)}
    weight_map = {tensor: each for each, part in parts.items() for tensor in part}
    index = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    files = {each: write(part) for each, part in parts.items()}
    return {**files, f"{name}.index.json": json.dumps(index).encode()}


# Its base is a folder in the adapter's own.
BASED = small_adapters.LORA | {"base_model_name_or_path": "FOLDER/base"}
BASE = {"base/config.json": json.dumps(small_adapters.GPT2).encode()}
ADAPTERS = st.sampled_from(
    [
        small_adapters.files(BASED) | BASE,
        small_adapters.files(BASED, {"a": ("F32", (2,))}) | BASE,
        small_adapters.files(),
        small_adapters.files(settings=b"{"),
        small_adapters.files(small_adapters.LORA | {"base_model_name_or_path": "/no/such"}),
    ]
)
PIPELINES = st.sampled_from(
    [
        pipelines.stable_diffusion(),
        pipelines.stable_diffusion(unet={}),
        pipelines.encoders(text_encoder=pipelines.model(pipelines.CLIP, pipelines.CLIP_SPOILT)),
        pipelines.sentence(),
        pipelines.sentence() | {"sentence_bert_config.json": b"{"},
        pipelines.sentence(pipelines.SECOND, **{"2_Dense": pipelines.model({}, {})}),
    ]
)


def without_place(outcome: Report | Unaudited) -> dict[str, Any]:
    """The JSON of an outcome but for where its bytes came from."""
    found = json.loads(as_json.render(outcome))
    for one in (found, *found["parts"]):
        del one["requested"], one["source"], one["origin"]
    del found["model"], found["fetched"]
    return found


def recorded(folder: Path, file: Path) -> Report | Unaudited:
    """The outcome of a folder, which is that of its snapshot when the folder is gone."""
    first = auditor.audit(str(folder))
    file.write_bytes(dump(fetch(str(folder), choose=with_companions), file.name))
    folder.rename(folder.with_name("gone"))
    again = auditor.audit(str(file))
    assert again.source == Source.SNAPSHOT
    assert without_place(again) == without_place(first)
    return first


@examples(40)  # each audits a folder twice
@given(checkpoints() | ADAPTERS | PIPELINES, st.sampled_from(["s.json", "s.json.gz"]))
def test_a_snapshot_gives_the_same_report(tmp_path_factory, files, name):
    place = tmp_path_factory.mktemp("law")
    folder = place / "model"
    own = {name: content.replace(b"FOLDER", bytes(folder)) for name, content in files.items()}
    pipelines.written(folder, own)
    with suppress(SourceError):  # what cannot be read cannot be recorded either
        recorded(folder, place / name)


# --- any size ---------------------------------------------------------------------------------


@each_night
@pytest.mark.slow
def test_deepseek_v3_is_recorded_in_less_than_3_mb_and_audited_again(tmp_path):
    """163 shards of 91,991 tensors: 11.5 MB of headers, and an index of 8.9."""
    folder = tmp_path / "model"
    deepseek_v3.write(folder)
    report = recorded(folder, tmp_path / "s.json")
    assert (report.verdict, report.residual) == ("clean", 0)
    assert report.observed.tensors == deepseek_v3.TENSORS
    assert report.observed.elements == deepseek_v3.ELEMENTS
    assert (tmp_path / "s.json").stat().st_size < 3_000_000


def noise(size: int) -> str:
    """Text that hardly becomes shorter by packing."""
    content = Random(12).randbytes(size * 3 // 4)  # noqa: S311 - no secret
    return base64.b64encode(content).decode()


LARGE = {
    "noise": [noise(12_500_000)] * 3,
    "what JSON escapes": ["\\u0001\u6f22\\\\" * 1_000_000],
    "commas": ["," * 12_000_000] * 4,
    "no metadata": [""] * 400,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", one_in(2, LARGE, 1))
def test_headers_as_large_as_are_read_are_recorded(tmp_path, kind):
    """Shards whose metadata is long; together as long as a model's headers may be."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_bytes(config_bytes(architectures=["BertModel"]))
    weight_map = {}
    for number, text in enumerate(LARGE[kind]):
        name, tensor = f"model-{number:05}.safetensors", f"x.{number}"
        weight_map[tensor] = name
        entry = '{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
        header = f'{{"__metadata__":{{"a":"{text}"}},"{tensor}":{entry}}}'
        (folder / name).write_bytes(framed(header, b"\0"))
    index = {"metadata": {"total_size": len(LARGE[kind])}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    recorded(folder, tmp_path / "s.json")
