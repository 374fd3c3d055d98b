"""Small models of many architectures that are trained for a hundred steps, so that their numbers
leave the initializer: language models on the source text of Python's standard library, image
models on the same bytes as pixels.
"""

import sysconfig
from pathlib import Path
from typing import Any

import torch
import transformers

_BYTES = 260  # vocabulary: each byte, and four more
_SMALL = {
    "vocab_size": _BYTES,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
_GROUPED = {
    **_SMALL,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
_TOWERS = {
    "vocab_size": _BYTES,
    "d_model": 64,
    "encoder_layers": 3,
    "decoder_layers": 3,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 128,
    "decoder_ffn_dim": 128,
}
_EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
# Class -> what its config says beside the defaults of its type.
MODELS: dict[str, dict[str, Any]] = {
    "BertForMaskedLM": _SMALL,
    "RobertaForMaskedLM": {**_SMALL, "max_position_embeddings": 130},
    "ElectraForMaskedLM": {**_SMALL, "embedding_size": 32},
    "LlamaForCausalLM": _GROUPED,
    "MistralForCausalLM": {**_GROUPED, "hidden_size": 96},
    "Qwen2ForCausalLM": {**_GROUPED, "num_hidden_layers": 6},
    "Qwen3ForCausalLM": {**_GROUPED, "head_dim": 16},
    "GemmaForCausalLM": {**_GROUPED, "head_dim": 16, "tie_word_embeddings": True},
    "Gemma2ForCausalLM": {**_GROUPED, "head_dim": 16, "tie_word_embeddings": True},
    "Phi3ForCausalLM": _GROUPED,
    "Olmo2ForCausalLM": _GROUPED,
    "GraniteForCausalLM": _GROUPED,
    "CohereForCausalLM": {**_GROUPED, "tie_word_embeddings": True},
    "GPTNeoXForCausalLM": _SMALL,
    "MixtralForCausalLM": {**_GROUPED, "num_local_experts": 4},
    "Qwen2MoeForCausalLM": {**_GROUPED, **_EXPERTS, "shared_expert_intermediate_size": 64},
    "GPT2LMHeadModel": {
        "vocab_size": _BYTES,
        "n_embd": 64,
        "n_layer": 3,
        "n_head": 4,
        "n_positions": 128,
    },
    "OPTForCausalLM": {**_SMALL, "ffn_dim": 128, "word_embed_proj_dim": 64},
    "BloomForCausalLM": {"vocab_size": _BYTES, "hidden_size": 64, "n_layer": 3, "n_head": 4},
    "FalconForCausalLM": _SMALL,
    "T5ForConditionalGeneration": {
        "vocab_size": _BYTES,
        "d_model": 64,
        "d_ff": 128,
        "num_layers": 3,
        "num_heads": 4,
        "d_kv": 16,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
    },
    "BartForConditionalGeneration": {**_TOWERS, "max_position_embeddings": 128},
    "ViTForImageClassification": {
        **_SMALL,
        "image_size": 16,
        "patch_size": 4,
        "num_labels": 8,
    },
}


def train(name: str, place: Path, seed: int, steps: int = 100) -> tuple[Path, Path]:
    """Write the model before and after its training; return the two folders."""
    torch.manual_seed(seed)
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**MODELS[name]))
    fresh, trained = place / "fresh" / name, place / "trained" / name
    model.save_pretrained(fresh)
    rate, decay = [(1e-3, 0.0), (5e-4, 0.1), (2e-3, 0.01)][seed % 3]
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    model.train()
    for _ in range(steps):
        _loss(name, model).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(trained)
    return fresh, trained


def _text() -> torch.Tensor:
    library = Path(sysconfig.get_path("stdlib"))
    content = b"".join(path.read_bytes() for path in sorted(library.glob("*.py"))[:60])
    return torch.tensor(list(content), dtype=torch.long)


_TEXT = _text()


def _batch(count: int, length: int) -> torch.Tensor:
    starts = torch.randint(0, len(_TEXT) - length, (count,))
    return torch.stack([_TEXT[start : start + length] for start in starts])


def _loss(name: str, model: torch.nn.Module) -> torch.Tensor:
    if "Image" in name:
        pixels = _batch(16, 16 * 16).float().view(16, 1, 16, 16) / 64 - 1
        labels = torch.randint(0, 8, (16,))
        images = pixels.repeat(1, 3, 1, 1) + labels.view(-1, 1, 1, 1) / 4
        return model(pixel_values=images, labels=labels).loss
    tokens = _batch(12, 64)
    if "Masked" not in name:
        return model(input_ids=tokens, labels=tokens).loss
    is_hidden = torch.rand(tokens.shape) < 0.2
    labels = tokens.masked_fill(~is_hidden, -100)
    return model(input_ids=tokens.masked_fill(is_hidden, _BYTES - 1), labels=labels).loss
