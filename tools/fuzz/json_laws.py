"""Indexes and configs: what is read of them is what is there, and whatever they hold is told."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from random import Random
from typing import Any
from zlib import crc32

import jsonschema
from support.bad_input.making import GOOD_WEIGHTS, index
from support.checkpoints import TINY

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot import RepoFile, Snapshot, Source, TextFile, WeightHeader
from auditor.containers.index import parse_index
from auditor.errors import CheckpointError
from auditor.formats import View
from auditor.formats.registry import FORMATS
from auditor.oracle import client
from auditor.report import Report
from fuzz import json_forms
from fuzz.target import READ, REFUSED, Target, Verdict

_RENDERED = 8  # one in so many: forms and schema take ten times as long as the audit
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_SMALL = {
    "vocab_size": 7,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 6,
}
_LLAMA = {"model_type": "llama", "num_key_value_heads": 1, "torch_dtype": "bfloat16", **_SMALL}


@cache
def _configs() -> tuple[bytes, ...]:
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}
    moe = {**_LLAMA, "model_type": "mixtral", "num_local_experts": 2, "num_experts_per_tok": 1}
    t5 = {"model_type": "t5", "d_model": 8, "d_kv": 4, "d_ff": 6, "num_layers": 1, "num_heads": 2}
    image = {"model_type": "vit", **_SMALL, "image_size": 8, "patch_size": 4, "num_labels": 3}
    both = {"model_type": "llava", "text_config": _LLAMA, "vision_config": {"model_type": "clip"}}
    found: list[dict[str, Any]] = [
        {"architectures": ["BertModel"], **TINY},
        {"architectures": ["BertForMaskedLM"], "tie_word_embeddings": False, **TINY},
        {"architectures": ["LlamaForCausalLM"], "rope_scaling": {"type": "x", "factor": 2}}
        | _LLAMA,
        {"architectures": ["LlamaForCausalLM"], "quantization_config": gptq} | _LLAMA,
        {"architectures": ["MixtralForCausalLM"]} | moe,
        {"architectures": ["T5ForConditionalGeneration"], "auto_map": {"AutoModel": "a.B"}} | t5,
        {"architectures": ["ViTForImageClassification"], "id2label": {"0": "a", "1": "b"}} | image,
        {"architectures": ["LlavaForConditionalGeneration"]} | both,
        {"_class_name": "UNet2DConditionModel", "_diffusers_version": "0.30"},
    ]
    return tuple(json.dumps(one).encode() for one in found)


def _config_case(random: Random) -> bytes:
    return json_forms.mutated(random.choice(_configs()), random)


def _index_case(random: Random) -> bytes:
    spread = {"a": "x/y.safetensors", "b": "model-00001-of-00003.safetensors"}
    seeds = (index(), index(spread, total_parameters=7), b'{"weight_map":{"a":"b"}}')
    return json_forms.mutated(random.choice(seeds), random)


# --- indexes ----------------------------------------------------------------------------------


def _judge_index(content: bytes) -> Verdict:
    """Against json.loads, and against what a path is to the operating system."""
    try:
        found = parse_index(_INDEX, content)
    except CheckpointError as error:
        return Verdict(REFUSED, _not_a_line(str(error)))
    theirs = json.loads(content)["weight_map"]
    if dict(found.weight_map) != theirs:
        return Verdict(READ, f"has {dict(found.weight_map)}, and json.loads {theirs}")
    for shard in found.shards:
        inside = os.path.normpath(os.path.join("/folder", shard))  # noqa: PTH118 - as text
        if inside != f"/folder/{shard}":
            return Verdict(READ, f"has the shard {shard!r}, which is {inside}")
    return Verdict(READ)


def _not_a_line(text: str) -> str | None:
    return None if text.isprintable() and len(text) < 1000 else f"says {text[:300]!r}"


# --- configs ----------------------------------------------------------------------------------


@contextmanager
def _without_oracle() -> Iterator[None]:
    """It takes seconds for a config, and has tests of its own."""
    known = client.available_oracle
    client.available_oracle = lambda _="": None  # type: ignore[assignment]
    try:
        yield
    finally:
        client.available_oracle = known


@cache
def _validator() -> jsonschema.Draft202012Validator:
    schema = json.loads((files("auditor.formats") / "report.schema.json").read_bytes())
    return jsonschema.Draft202012Validator(schema)


def _snapshot(config: bytes) -> Snapshot:
    size = len(GOOD_WEIGHTS)
    head = GOOD_WEIGHTS[: 8 + int.from_bytes(GOOD_WEIGHTS[:8], "little")]
    listed = (RepoFile(name="config.json", size=len(config)), RepoFile(name=_WEIGHTS, size=size))
    return Snapshot(
        model="m",
        commit=None,
        source=Source.FILE,
        origin="made by a fuzzer",
        files=listed,
        config=TextFile(name="config.json", content=config),
        headers=(WeightHeader(name=_WEIGHTS, size=size, prefix=head),),
    )


def _judge_config(content: bytes) -> Verdict:
    """Laws 2 and 3, the JSON's schema, and what a terminal can show."""
    validator = _validator()
    with _without_oracle():
        outcome = examine(_snapshot(content), Options(requested="m"))
    kind = READ if isinstance(outcome, Report) and outcome.expected else REFUSED
    if isinstance(outcome, Report) and outcome.residual:
        return Verdict(kind, f"leaves {outcome.residual} parameters unexplained")
    stored = outcome.observed.tensors if outcome.observed else None
    if stored not in {None, GOOD_WEIGHTS.count(b'"dtype"')}:
        return Verdict(kind, f"tallies {stored} tensors")
    if crc32(content) % _RENDERED:
        return Verdict(kind)
    for text in FORMATS["json"]([outcome], View()).values():
        error = next(validator.iter_errors(json.loads(text)), None)
        if error is not None:
            return Verdict(kind, f"is not as the schema has it: {error.message[:300]}")
    for form in ("terminal", "csv"):
        for text in FORMATS[form]([outcome], View()).values():
            if not all(letter.isprintable() or letter in "\r\n" for letter in text):
                return Verdict(kind, f"has control characters as {form}")
    return Verdict(kind)


TARGETS = {
    "indexes": Target(
        "indexes",
        "an index that is read is read as json.loads reads it, and leaves its folder nowhere",
        _index_case,
        _judge_index,
    ),
    "configs": Target(
        "configs",
        "whatever a config holds, the audit ends in an outcome whose sums close",
        _config_case,
        _judge_config,
    ),
}
