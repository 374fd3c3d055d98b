"""Trained weights of one model of a family under the config of another one, and other losses.

The pairs are small models that differ as published ones do: in the keys of which some are in no
shape (numbers of heads, windows, rope), or in a single key that a shape determines.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

_BERT = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3,
    "num_attention_heads": 4, "max_position_embeddings": 64,
}  # fmt: skip
_GROUPED = {**_BERT, "num_key_value_heads": 2}
_LARGER = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 8}
_WHISPER = {
    "vocab_size": 96, "d_model": 32, "encoder_layers": 2, "decoder_layers": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "max_source_positions": 30, "max_target_positions": 20,
    "num_mel_bins": 8, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1,
}  # fmt: skip
_BART = {
    "vocab_size": 96, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "max_position_embeddings": 64,
}  # fmt: skip
_T5 = {"vocab_size": 96, "d_model": 32, "d_ff": 48, "num_layers": 3, "num_heads": 4, "d_kv": 8}
_GPT2 = {"vocab_size": 96, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64}
_VIT = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "image_size": 16, "patch_size": 4, "num_labels": 5,
}  # fmt: skip
_BLOOM = {"vocab_size": 96, "hidden_size": 32, "n_layer": 3, "n_head": 4}
_PATTERN = {**_GROUPED, "head_dim": 8, "num_hidden_layers": 7, "sliding_window": 8}


class Siblings(NamedTuple):
    """A model that was trained, and how its config in the folder differs from its own."""

    family: str
    trained: Mapping[str, Any]
    declared: Mapping[str, Any]  # the keys that differ


SIBLINGS: Mapping[str, Siblings] = {
    "a wider BERT": Siblings("BertForMaskedLM", _BERT, {**_LARGER, "num_hidden_layers": 2}),
    "a wider RoBERTa": Siblings("RobertaForMaskedLM", _BERT, {**_LARGER, "num_hidden_layers": 5}),
    "a wider ELECTRA": Siblings(
        "ElectraForPreTraining", {**_BERT, "embedding_size": 16}, {**_LARGER, "embedding_size": 64}
    ),
    "a deeper DeBERTa": Siblings(
        "DebertaV2ForSequenceClassification", _BERT, {"num_hidden_layers": 6}
    ),
    "a wider GPT-2": Siblings("GPT2LMHeadModel", _GPT2, {"n_embd": 64, "n_head": 8, "n_layer": 4}),
    "a wider Llama": Siblings("LlamaForCausalLM", _GROUPED, {**_LARGER, "num_hidden_layers": 5}),
    "a Llama of another generation": Siblings(
        "LlamaForCausalLM",
        {**_GROUPED, "rope_theta": 500000.0},
        {"vocab_size": 80, "intermediate_size": 40, "num_key_value_heads": 4, "rope_theta": 1e4},
    ),
    "a Qwen2 of other groups": Siblings(
        "Qwen2ForCausalLM", {**_GROUPED, "num_attention_heads": 8}, {"num_key_value_heads": 1}
    ),
    "a Qwen2 of other heads and groups": Siblings(
        "Qwen2ForCausalLM",
        {**_GROUPED, "num_attention_heads": 8, "num_key_value_heads": 4},
        {"num_attention_heads": 4, "num_key_value_heads": 4},
    ),
    "a wider Qwen3": Siblings(
        "Qwen3ForCausalLM", {**_GROUPED, "head_dim": 8}, {**_LARGER, "num_hidden_layers": 4}
    ),
    "a Mistral with a window": Siblings(
        "MistralForCausalLM",
        {**_GROUPED, "sliding_window": None},
        {"hidden_size": 64, "intermediate_size": 96, "sliding_window": 8},
    ),
    "a Mixtral of more experts": Siblings(
        "MixtralForCausalLM",
        {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 1},
        {"num_local_experts": 8, "num_experts_per_tok": 2},
    ),
    "a larger T5": Siblings(
        "T5ForConditionalGeneration", _T5, {"d_ff": 96, "d_kv": 16, "num_heads": 8}
    ),
    "a larger BART": Siblings(
        "BartForConditionalGeneration", _BART,
        {"d_model": 64, "encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 8},
    ),
    "a turbo Whisper": Siblings("WhisperForConditionalGeneration", _WHISPER, {"decoder_layers": 2}),
    "a ViT of larger images": Siblings("ViTForImageClassification", _VIT, {"image_size": 24}),
    "a wider ViT": Siblings(
        "ViTForImageClassification", _VIT, {"hidden_size": 64, "num_attention_heads": 8}
    ),
    "a wider DistilBERT": Siblings(
        "DistilBertForMaskedLM",
        {"vocab_size": 96, "dim": 32, "hidden_dim": 48, "n_layers": 3, "n_heads": 4},
        {"dim": 64, "hidden_dim": 96, "n_heads": 8},
    ),
    "a wider GPT-NeoX": Siblings(
        "GPTNeoXForCausalLM", _BERT, {**_LARGER, "rotary_pct": 0.5, "num_hidden_layers": 4}
    ),
    "a wider OPT": Siblings(
        "OPTForCausalLM",
        {**_BERT, "ffn_dim": 48, "word_embed_proj_dim": 32},
        {"hidden_size": 64, "word_embed_proj_dim": 64, "ffn_dim": 96, "num_attention_heads": 8},
    ),
    "a wider Gemma": Siblings("GemmaForCausalLM", {**_GROUPED, "head_dim": 8}, _LARGER),
    "a Gemma 3 of fewer layers": Siblings(
        "Gemma3ForCausalLM", _PATTERN, {"num_hidden_layers": 5}
    ),
    "a Phi-3 of another tokenizer": Siblings(
        "Phi3ForCausalLM",
        {**_GROUPED, "vocab_size": 200, "rope_theta": 250000.0, "pad_token_id": 0},
        {"vocab_size": 64, "rope_theta": 1e4},
    ),
    "a wider BLOOM": Siblings("BloomForCausalLM", _BLOOM, {"hidden_size": 64, "n_head": 8}),
}  # fmt: skip


def folder_of(pair: Siblings, folder: Path) -> Any:
    """Write the weights under the declared config; return the logits under their own config."""
    import torch  # noqa: PLC0415 - takes seconds
    import transformers  # noqa: PLC0415 - the same

    kind = getattr(transformers, pair.family)
    torch.manual_seed(len(pair.family))
    model = kind(kind.config_class(**pair.trained))
    with torch.no_grad():
        for parameter in model.parameters():  # so far from their start that each of them counts
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    logits = logits_of(pair.family, folder)
    declared = kind.config_class(**{**pair.trained, **pair.declared})
    declared.architectures = [pair.family]
    declared.dtype = torch.float32
    declared.save_pretrained(folder)
    return logits


def logits_of(family: str, folder: Path) -> Any:
    """What the model in a folder computes of one input, as transformers loads it."""
    import torch  # noqa: PLC0415 - takes seconds
    import transformers  # noqa: PLC0415 - the same

    model = getattr(transformers, family).from_pretrained(folder).eval()
    torch.manual_seed(1)
    ids = torch.randint(3, 50, (2, 17))
    inputs: dict[str, Any] = {"input_ids": ids}
    config = model.config
    if family.startswith("ViT"):
        inputs = {"pixel_values": torch.randn(2, 3, config.image_size, config.image_size)}
    elif family.startswith("Whisper"):
        frames = torch.randn(2, config.num_mel_bins, 2 * config.max_source_positions)
        inputs = {"input_features": frames, "decoder_input_ids": ids}
    elif family.endswith("ForConditionalGeneration"):
        inputs |= {"decoder_input_ids": ids[:, :9]}
    with torch.no_grad():
        return model(**inputs).logits
