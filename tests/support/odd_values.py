"""Folders of small models, the places of values in their JSON files, and what answers for them."""

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

from support import small_adapters
from support.builders import safetensors_bytes
from support.checkpoints import LLAMA
from support.fault_bench import FAMILIES
from support.pipelines import SECOND, Files, model, sentence, stable_diffusion, tensors, text, under
from support.pipelines import written as write_files
from support.published_figures import SIZES

import auditor
from auditor.analytic import catalogue
from auditor.errors import AuditError, Reason
from auditor.formats import View, comparison, doctor, fix_plan
from auditor.formats.registry import FORMATS

# A value of each type that JSON has, and those that Python compares, counts or converts badly.
ODD: tuple[Any, ...] = (
    *(None, True, 0, -1, 1.5, 1e308, float("inf"), float("nan"), 10**30, 10**600, "", "word", "1"),
    *([], [[]], [["a"]], ["a"], [-1, 1.5, "a", None], {}, {"a": 1}, {"a": {"a": [{}]}}, [{"a": 1}]),
    json.loads("[" * 60 + "]" * 60),
)
ROTATION = {"rope_type": "yarn", "type": "yarn", "factor": 2.0, "rope_theta": 1.0}
GROUP = {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 8}}
# One object with the settings of every layout: each reads its own.
PACKED = {
    "bits": 4,
    "group_size": 8,
    "desc_act": False,
    "dynamic": {"-:a": {"bits": 8}},
    "modules_to_not_convert": ["lm_head"],
    "llm_int8_skip_modules": ["lm_head"],
    "linear_weights_not_to_quantize": ["lm_head.weight"],
    "load_in_4bit": True,
    "weight_block_size": [8, 8],
    "activation_scheme": "dynamic",
    "config_groups": {"group_0": {**GROUP, "targets": ["Linear"]}},
    "ignore": ["lm_head"],
    "format": "pack-quantized",
    "quant_algo": "FP8",
    "quantized_layers": {"a": {"quant_algo": "FP8"}},
    "quant_type": {"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 32}}},
    "quant_config": {"weight_quant_params": {"nbits": 4, "group_size": 8}},
    "config_for_layers": {"a": {"vector_lens": [-1, 8], "num_centroids": [-1, 16]}},
    "weights": "int8",
    "mode": "affine",
}
METHODS = ["aqlm", "auto-round", "awq", "bitnet", "bitsandbytes", "compressed-tensors", "eetq"]
METHODS += ["fbgemm_fp8", "fp8", "gptq", "hqq", "modelopt", "mxfp4", "quanto", "torchao", "vptq"]
_TOKEN = {"content": "<s>", "special": True, "lstrip": False}
COMPANIONS = {
    "generation_config.json": {
        "eos_token_id": [1, 2],
        "pad_token_id": 0,
        "do_sample": True,
        "temperature": 0.5,
        "num_beams": 2,
        "suppress_tokens": [1],
        "forced_decoder_ids": [[1, 2]],
        "cache_implementation": "static",
        "max_length": 9,
    },
    "tokenizer_config.json": {
        "added_tokens_decoder": {"0": _TOKEN},
        "eos_token": _TOKEN,
        "extra_special_tokens": ["<a>"],
        "chat_template": [{"name": "default", "template": "{{ messages }}"}],
        "model_max_length": 6,
        "tokenizer_class": "LlamaTokenizer",
        "auto_map": {"AutoTokenizer": ["a.B", None]},
    },
    "special_tokens_map.json": {"eos_token": _TOKEN, "pad_token": "<pad>"},
    "tokenizer.json": {
        "truncation": {"max_length": 6},
        "padding": {"strategy": {"Fixed": 6}},
        "added_tokens": [{"id": 0, **_TOKEN}],
        "model": {"type": "BPE", "vocab": {"a": 1, "<s>": 0}, "merges": ["a a"]},
    },
    "preprocessor_config.json": {
        "image_processor_type": "CLIPImageProcessor",
        "feature_extractor_type": "WhisperFeatureExtractor",
        "processor_class": "CLIPProcessor",
        "size": {"shortest_edge": 4},
        "auto_map": {"AutoProcessor": "a.B"},
    },
    "sentence_bert_config.json": {"max_seq_length": 6, "transformer_task": "feature-extraction"},
}
_DECODER = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "float32",
    "pad_token_id": None,
    **LLAMA,
}


def _decoder(**changes: Any) -> Files:
    """A sound decoder in two shards, with its companion files; `changes` are further keys."""
    stored, names = tensors(_DECODER), ("model-00001-of-00002", "model-00002-of-00002")
    halves = [dict(list(stored.items())[start::2]) for start in (0, 1)]
    files = {f"{name}.safetensors": half for name, half in zip(names, halves, strict=True)}
    places = {name: file for file, half in files.items() for name in half}
    return {
        "config.json": text({**_DECODER, **changes}),
        "model.safetensors.index.json": text({"metadata": {"total_size": 9}, "weight_map": places}),
        **{file: safetensors_bytes(half) for file, half in files.items()},
        **{name: text(values) for name, values in COMPANIONS.items()},
    }


def _family(name: str) -> Files:
    [model_type, *_] = catalogue.types(name)
    values = {"architectures": [name], "model_type": model_type, **FAMILIES[name]}
    return model(values)


def _quantized(method: str) -> Files:
    return _decoder(quantization_config={"quant_method": method, **PACKED})


def _component(config: Mapping[str, Any]) -> Files:
    return model(config, {"a.weight": ("F32", (2, 3))})


_OTHERS = {
    size["model"]: size["config"]
    for size in SIZES
    if "model_type" not in size["config"] and "architectures" not in size["config"]
}
# A folder's name -> its files.
FOLDERS: Mapping[str, Callable[[], Files]] = {
    "decoder": partial(
        _decoder,
        rope_scaling=ROTATION,
        rope_parameters={"full_attention": ROTATION},
        layer_types=["full_attention", "sliding_attention", "full_attention"],
        id2label={"0": "a", "1": "b"},
        label2id={"a": 0, "b": 1},
        tie_word_embeddings=False,
        sliding_window=4,
        use_sliding_window=True,
        max_window_layers=1,
        head_dim=10,
        eos_token_id=[1],
        attention_bias=False,
        text_config={"model_type": "llama", "hidden_size": 40},
        transformers_version="5.0",
    ),
    "code": partial(_decoder, auto_map={"AutoModel": "modeling_a.B", "AutoConfig": "a.C"}),
    "adapter": lambda: small_adapters.files({**small_adapters.LORA, "rank_pattern": {"a": 1}}),
    "pipeline": lambda: stable_diffusion(tokenizer={"tokenizer_config.json": text(COMPANIONS)}),
    "sentence transformer": lambda: sentence(
        SECOND, **{"2_Dense": {"config.json": text({"in_features": 4, "out_features": 3})}}
    ),
    **{f"family {name}": partial(_family, name) for name in FAMILIES},
    **{f"packed by {method}": partial(_quantized, method) for method in METHODS},
    **{f"component {name}": partial(_component, one) for name, one in _OTHERS.items()},
}
Place = tuple[str, tuple[Any, ...]]  # a file, and the keys and indices that lead to a value


def places(files: Files) -> Iterator[Place]:
    """Yield each place of a value in a JSON file; of a list, its first item."""
    for name, content in files.items():
        if name.endswith(".json"):
            yield name, ()
            yield from ((name, path) for path in _paths(json.loads(content)))


def _paths(value: Any) -> Iterator[tuple[Any, ...]]:
    first = enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in value.items() if isinstance(value, dict) else first:
        yield (key,)
        if isinstance(item, dict | list):
            yield from ((key, *path) for path in _paths(item))


def swapped(files: Files, place: Place, value: Any) -> Files:
    """The files with another value at a place."""
    name, path = place
    document = {"": json.loads(files[name])}
    *above, last = ("", *path)
    within: Any = document
    for key in above:
        within = within[key]
    within[last] = deepcopy(value)
    return {**files, name: text(document[""])}


def written(folder: Path, files: Files) -> str:
    """Write the files; the base of an adapter lies beside the folder."""
    base = small_adapters.GPT2 if "adapter_config.json" in files else None
    if base:
        write_files(folder.parent / "base", under(".", model(base)))
        named = files["adapter_config.json"].replace(b"org/base", b"../base")
        files = {**files, "adapter_config.json": named}
    return write_files(folder, files)


# --- what answers -------------------------------------------------------------------------------


def _audit(folder: str, _sound: str) -> None:
    outcome = auditor.audit(folder, engines=("vllm", "mlx", "llama.cpp"))
    assert Reason.CRASHED not in {one.reason for one in _unaudited(outcome)}, outcome.detail
    for form in FORMATS.values():
        form([outcome], View())
    doctor.render(outcome, width=80, color=False)


def _unaudited(outcome: Any) -> Iterator[Any]:
    yield from (one for one in (outcome, *outcome.parts) if isinstance(one, auditor.Unaudited))


def _explain(folder: str, _sound: str) -> None:
    assert Reason.CRASHED not in {one.reason for one in _unaudited(auditor.explain(folder))}


def _diff(folder: str, sound: str) -> None:
    found = auditor.diff(sound, folder)
    comparison.as_object(found)


ANSWERS: Mapping[str, Callable[[str, str], object]] = {
    "audit": _audit,
    "explain": _explain,
    "memory": lambda folder, _: auditor.memory(folder, context=7),
    "fix": lambda folder, _: fix_plan.render(
        auditor.fix(folder, engines=("vllm", "mlx", "llama.cpp"))
    ),
    "claim": lambda folder, _: auditor.claim(folder, ["110M", "8x7B", "V*D + L*D", "30B-A3B"]),
    "diff": _diff,
}


def answer(command: str, folder: str, sound: str) -> None:
    """Run a command; what it refuses is one line, and any other error is one of ours."""
    try:
        ANSWERS[command](folder, sound)
    except AuditError as refusal:
        assert "\n" not in str(refusal)  # noqa: PT017 - one line
