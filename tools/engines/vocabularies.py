"""Which tokenizers llama.cpp's loader knows, and what each needs in the metadata."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engines.gguf_files import Typed, write
from engines.judging import Judge

_TOKENS = ["<unk>", "<s>", "</s>", "\n", *(f"t{number}" for number in range(44))]
_MERGES = ["a b", "b c"]
_WORD = re.compile(r"[a-z][a-z0-9.]*([_-][a-z0-9.]+){0,4}")
_LONGEST_MODEL, _LONGEST_PRE = 9, 20  # characters
_COUNT = len(_TOKENS)
_KEYS: Mapping[str, Typed] = {
    "tokens": Typed("str", _TOKENS),
    "scores": Typed("f32", [0.0] * _COUNT),
    "token_type": Typed("i32", [2, 3, 3, *([1] * (_COUNT - 3))]),
    "merges": Typed("str", _MERGES),
    "pre": Typed("str", "default"),
}
_BASE: Mapping[str, Typed] = {
    "general.architecture": Typed("str", "gpt2"),
    "gpt2.context_length": Typed("u32", 32),
    "gpt2.embedding_length": Typed("u32", 32),
    "gpt2.block_count": Typed("u32", 1),
    "gpt2.feed_forward_length": Typed("u32", 32),
    "gpt2.attention.head_count": Typed("u32", 1),
    "gpt2.attention.layer_norm_epsilon": Typed("f32", 1e-5),
}
# The loader's errors about a vocabulary; another error comes after the vocabulary was read.
_VOCABULARY = "error loading model vocabulary"


def recorded(judge: Judge, path: Path, names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tokenizers and pre-tokenizers that the loader knows, and what each requires."""

    def error(**keys: Typed) -> str:
        pairs = {f"tokenizer.ggml.{key}": value for key, value in keys.items()}
        write(path, {**_BASE, **pairs}, {})
        return judge.outcomes([path])[0].get("error", "")

    # A linker stores a text that ends another one as its end.
    ends = {word[at:] for word in names["words"] for at in range(len(word) - 1)}
    words = sorted(word for word in ends if len(word) <= _LONGEST_PRE and _WORD.fullmatch(word))
    models = [
        word
        for word in words
        if len(word) <= _LONGEST_MODEL
        and "unknown tokenizer" not in error(model=Typed("str", word))
    ]
    pres = [
        word
        for word in words
        if "unknown pre-tokenizer"
        not in error(**_KEYS | {"model": Typed("str", "gpt2"), "pre": Typed("str", word)})
    ]
    required: dict[str, list[str]] = {}
    for model in models:
        keys = {**_KEYS, "model": Typed("str", model)}
        if _VOCABULARY in error(**keys):
            required[model] = ["tokens"]
            continue
        required[model] = sorted(
            key
            for key in _KEYS
            if _VOCABULARY in error(**{k: v for k, v in keys.items() if k != key})
        )
    return {"models": models, "pre": pres, "required": required}
