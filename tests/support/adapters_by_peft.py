"""Small adapters, made and saved by peft itself: the reference for what is on disk."""

import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

from safetensors import safe_open

S = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 40,
    "intermediate_size": 12,
}
PLACES = {"max_position_embeddings": 10}
# Base -> its class, its config, its task, and the ends of its layers' names: linear ones first.
BASES: dict[str, tuple[str, dict[str, Any], str | None, tuple[str, ...]]] = {
    "gpt2": (
        "GPT2LMHeadModel",
        {"n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": 40, "n_positions": 10}
        | {"bos_token_id": 0, "eos_token_id": 0},
        "CAUSAL_LM",
        ("c_attn", "c_proj", "mlp.c_fc", "wte"),
    ),
    "bert": (
        "BertForSequenceClassification",
        {**S, **PLACES},
        "SEQ_CLS",
        ("query", "dense", "output.dense", "0.attention.self.value", "word_embeddings"),
    ),
    "distilbert": (
        "DistilBertForSequenceClassification",
        {"dim": 8, "n_layers": 2, "n_heads": 2, "vocab_size": 40, "hidden_dim": 12, **PLACES},
        "SEQ_CLS",
        ("q_lin", "v_lin", "lin1"),
    ),
    "roberta": (
        "RobertaForTokenClassification",
        {**S, **PLACES},
        "TOKEN_CLS",
        ("query", "value", "intermediate.dense"),
    ),
    "llama": (
        "LlamaForCausalLM",
        {**S, "num_key_value_heads": 1, "attention_bias": True},
        "CAUSAL_LM",
        ("q_proj", "v_proj", "down_proj", "embed_tokens", "lm_head"),
    ),
    "qwen2": (
        "Qwen2ForCausalLM",
        {**S, "num_key_value_heads": 1, "tie_word_embeddings": True},
        "CAUSAL_LM",
        ("q_proj", "k_proj", "mlp.up_proj", "embed_tokens"),
    ),
    "t5": (
        "T5ForConditionalGeneration",
        {"d_model": 8, "d_kv": 4, "num_heads": 2, "num_layers": 2, "d_ff": 12, "vocab_size": 40},
        "SEQ_2_SEQ_LM",
        ("q", "v", "wi", "EncDecAttention.o"),
    ),
    "gpt_neox": (
        "GPTNeoXForCausalLM",
        {**S, **PLACES},
        "CAUSAL_LM",
        ("query_key_value", "dense", "dense_4h_to_h"),
    ),
    "vit": (
        "ViTForImageClassification",
        {**S, "image_size": 8, "patch_size": 4},
        None,
        ("q_proj", "fc1", "projection"),
    ),
    "mixtral": (
        "MixtralForCausalLM",
        {**S, "num_local_experts": 3, "num_experts_per_tok": 2},
        "CAUSAL_LM",
        ("q_proj", "o_proj"),
    ),
    "gpt_oss": (
        "GptOssForCausalLM",
        {**S, "num_local_experts": 3, "num_experts_per_tok": 2, "head_dim": 4}
        | {"num_key_value_heads": 1},
        "CAUSAL_LM",
        ("q_proj", "o_proj"),
    ),
}


class RefusedError(Exception):
    """peft does not build such an adapter."""


def base_config(base: str) -> dict[str, Any]:
    """The base's config.json, as save_pretrained writes it."""
    return json.loads(_config(base).to_json_string(use_diff=False))


def _config(base: str):
    from transformers import AutoConfig  # noqa: PLC0415 - without the oracle there is none

    target, values, _, _ = BASES[base]
    return AutoConfig.for_model(base, **values, architectures=[target])


def adapter(folder: Path, base: str, method: str, **settings: Any) -> None:
    """An adapter of peft in a folder: `method` names its config class, "LoraConfig"."""
    import peft  # noqa: PLC0415 - not everyone has it
    import transformers  # noqa: PLC0415 - likewise

    target, _, task, _ = BASES[base]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(transformers, target)(_config(base))
        try:
            config = getattr(peft, method)(task_type=task, **settings)
            found = peft.get_peft_model(model, config)
        except (ValueError, TypeError, AttributeError, RuntimeError, KeyError) as error:
            raise RefusedError(f"{type(error).__name__}: {error}") from error
        found.save_pretrained(folder)


def made(base: str, method: str, **settings: Any) -> tuple[bytes, dict[str, tuple[int, ...]]]:
    """adapter_config.json, and the names and shapes in adapter_model.safetensors."""
    with tempfile.TemporaryDirectory() as folder:
        adapter(Path(folder), base, method, **settings)
        config = Path(folder, "adapter_config.json").read_bytes()
        with safe_open(Path(folder, "adapter_model.safetensors"), "pt") as file:
            return config, {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 - no dict
