"""GGUF's names of the modules of each model type, with transformers' names on disk.

The left sides come from llama.cpp's `gguf` package (constants.TENSOR_NAMES, with `@` for the
`blk.N.` of a block); the right sides have `{n}` for N. `*` is the number of an expert or of a head,
which the first axis of a stored tensor counts. `a|b` means the name that the architecture has.
`.weight` or `.bias` follows a name, unless the left side contains it already.
"""

from collections.abc import Mapping
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
