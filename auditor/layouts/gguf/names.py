"""GGUF's names of the modules of each model type, with transformers' names on disk.

The left sides come from llama.cpp's `gguf` package (constants.TENSOR_NAMES, with `@` for the
`blk.N.` of a block); the right sides have `{n}` for N. `*` is the number of an expert or of a head,
which the first axis of a stored tensor counts. `a|b` means the name that the architecture has.
`.weight` or `.bias` follows a name, unless the left side contains it already.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from auditor.layouts.gguf import decoders, others
from auditor.layouts.gguf.decoders import Table

TABLES: Mapping[str, Table] = MappingProxyType(
    {
        "bert": others.BERT,
        "bloom": others.BLOOM,
        "cohere": decoders.LLAMA,
        "cohere2": decoders.LLAMA,
        "deepseek_v2": decoders.DEEPSEEK,
        "deepseek_v3": decoders.DEEPSEEK,
        "falcon": others.FALCON,
        "gemma": decoders.LLAMA,
        "gemma2": decoders.GEMMA2,
        "gemma3_text": decoders.GEMMA2,
        "glm4": decoders.GLM4,
        "glm4_moe": decoders.GLM4_MOE,
        "gpt2": others.GPT2,
        "gpt_bigcode": others.GPT2,
        "gpt_neox": others.GPT_NEOX,
        "gpt_oss": decoders.GPT_OSS,
        "granite": decoders.LLAMA,
        "granitemoe": decoders.GRANITEMOE,
        "lfm2": decoders.LFM2,
        "lfm2_moe": decoders.LFM2,
        "llama": decoders.LLAMA,
        "mamba": others.MAMBA,
        "mistral": decoders.LLAMA,
        "mixtral": decoders.MIXTRAL,
        "modernbert": others.MODERNBERT,
        "mpt": others.MPT,
        "olmo2": decoders.OLMO2,
        "olmoe": decoders.ROUTED,
        "phi": decoders.PHI,
        "phi3": decoders.PHI3,
        "qwen2": decoders.LLAMA,
        "qwen2_moe": decoders.QWEN2_MOE,
        "qwen3": decoders.LLAMA,
        "qwen3_moe": decoders.ROUTED,
        "smollm3": decoders.LLAMA,
        "stablelm": decoders.STABLELM,
        "starcoder2": decoders.STARCODER2,
        "t5": others.T5,
    }
)

# Some files store two tensors instead: attn_k_b and attn_v_b, ffn_gate_exps and ffn_up_exps.
_OFTEN_IN_TWO = frozenset({"@attn_kv_b", "@ffn_gate_up_exps"})
_NUMBER = re.compile(r"\.(\d+)(?=\.)", re.ASCII)
_ENDING = re.compile(r"(.+)(\.(?:weight|bias))", re.ASCII | re.DOTALL)


def names_in_file(model_type: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names under which a GGUF file stores tensors that have these names on disk.

    Tensors that only are a part of a stored one, or have an unknown name, are left out.
    """
    key_by_name = {
        path.replace("{n}", "#") + alternative.replace("*", "#"): key
        for key, template in TABLES.get(model_type, {}).items()
        if key not in _OFTEN_IN_TWO
        for path, alternative in _alternatives(template)
    }
    stored_names = set()
    for name in names:
        number = _NUMBER.search(name)
        block = f"blk.{number[1]}." if number else ""
        # Only the block has a number, or the expert too.
        for pattern in (_NUMBER.sub(".#", name, count=1), _NUMBER.sub(".#", name)):
            stem = _ENDING.fullmatch(pattern)
            if key := key_by_name.get(pattern):
                stored_names.add(key.replace("@", block))
                break
            if stem and (key := key_by_name.get(stem[1])):
                stored_names.add(f"{key.replace('@', block)}{stem[2]}")
                break
    return frozenset(stored_names)


def _alternatives(template: str) -> list[tuple[str, str]]:
    before, within, rest = template.rpartition(".{n}.")
    return [(f"{before}{within}", alternative) for alternative in rest.split("|")]
