"""The supported GGUF architectures, and how the keys of config.json follow from their metadata.

Some keys are not in the metadata, because llama.cpp derives them from the tensors; this module
derives them from the tensors, too.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from auditor.containers.gguf import GgufHeader

Values = dict[str, Any]


class Facts(NamedTuple):
    """The metadata of one architecture, and the shapes of its tensors."""

    header: GgufHeader
    arch: str
    shapes: Mapping[str, tuple[int, ...]]  # of all tensors, including those of other shards

    def number(self, key: str) -> int | None:
        """Return an integer of the metadata, or the largest integer of a list; None if absent."""
        value = self.header.metadata.get(f"{self.arch}.{key}")
        if isinstance(value, tuple) and value:
            numbers = [item for item in value if type(item) is int]
            return max(numbers) if len(numbers) == len(value) else None
        return value if type(value) is int else None

    def by_layer(self, key: str) -> tuple[int, ...]:
        """Return the value of each layer; () if the metadata have one value for all layers."""
        value = self.header.metadata.get(f"{self.arch}.{key}")
        numbers = value if isinstance(value, tuple) else ()
        return tuple(item for item in numbers if type(item) is int)

    def has(self, *names: str) -> bool:
        """Return whether any block has a tensor with one of these names, such as "attn_q.bias"."""
        endings = tuple(f".{name}" for name in names)
        return any(tensor.endswith(endings) for tensor in self.shapes)

    def width(self, name: str, axis: int) -> int | None:
        """Return the length of an axis of the first block's tensor `name`; None if absent."""
        for tensor, shape in self.shapes.items():
            if tensor.endswith(f".{name}") and len(shape) >= -axis:
                return shape[axis]
        return None


class Architecture(NamedTuple):
    """An architecture of llama.cpp, with its model type and config keys in transformers."""

    model_type: str
    name: str  # the class
    more: Callable[[Facts], Values] = lambda _facts: {}  # keys in addition to the common ones
    tied: bool = False  # the output layer is always tied: a stored output tensor is a copy
    target: str | None = None  # the class to audit for, if it is not `name`
    nulls: tuple[str, ...] = ()  # keys that are null if the metadata lack them


def _experts(facts: Facts) -> Values:
    return {"num_experts": facts.number("expert_count")}


def _mixtral(facts: Facts) -> Values:
    """Return Mixtral's keys if there are experts, because llama.cpp calls Mixtral "llama", too."""
    count = facts.number("expert_count")
    if not count:
        return {}
    return {
        "model_type": "mixtral",
        "architectures": ["MixtralForCausalLM"],
        "num_local_experts": count,
    }


def _local_experts(facts: Facts) -> Values:
    return {"num_local_experts": facts.number("expert_count")}


def _qwen2_moe(facts: Facts) -> Values:
    shared = facts.number("expert_shared_feed_forward_length")
    shared = shared or facts.width("ffn_gate_shexp.weight", -2)
    return {**_experts(facts), "shared_expert_intermediate_size": shared}


def _normed_heads(key: str) -> Callable[[Facts], Values]:
    return lambda facts: {key: facts.has("attn_q_norm.weight")}


def _stablelm(facts: Facts) -> Values:
    return {
        "use_qkv_bias": facts.has("attn_q.bias"),
        "use_parallel_residual": not facts.has("ffn_norm.weight"),
        "qk_layernorm": facts.has("attn_q_norm.weight"),
    }


def _starcoder2(facts: Facts) -> Values:
    return {"use_bias": facts.has("attn_q.bias")}


def _gpt2(facts: Facts) -> Values:
    return {"n_inner": facts.number("feed_forward_length")}


def _starcoder(facts: Facts) -> Values:
    return {**_gpt2(facts), "multi_query": facts.number("attention.head_count_kv") == 1}


def _falcon(facts: Facts) -> Values:
    """Return Falcon's keys; 7B has one key head, larger models have one for each group of heads."""
    keys, heads = (facts.number(f"attention.head_count{which}") for which in ("_kv", ""))
    grouped = keys not in {None, 1, heads}
    norms = 2 if facts.has("attn_norm_2.weight") else 1
    return {
        "num_kv_heads": keys,
        "ffn_hidden_size": facts.number("feed_forward_length"),
        "multi_query": keys == 1,
        "new_decoder_architecture": grouped,
        "num_ln_in_parallel_attn": norms if grouped else None,
        "bias": facts.has("attn_qkv.bias"),
    }


def _mamba(facts: Facts) -> Values:
    return {
        "state_size": facts.number("ssm.state_size"),
        "conv_kernel": facts.number("ssm.conv_kernel"),
        "time_step_rank": facts.number("ssm.time_step_rank"),
        "intermediate_size": facts.number("ssm.inner_size"),
        "use_conv_bias": facts.has("ssm_conv1d.bias"),
        "use_bias": facts.has("ssm_in.bias"),
    }


def _lfm2(facts: Facts) -> Values:
    """Return LFM2's keys: layers with key heads are attention, all others convolutions."""
    keys = facts.by_layer("attention.head_count_kv")
    kinds = ["full_attention" if count else "conv" for count in keys]
    return {
        "conv_L_cache": facts.number("shortconv.l_cache"),
        "block_auto_adjust_ff_dim": False,
        "layer_types": kinds or None,
    }


def _lfm2_moe(facts: Facts) -> Values:
    return {
        **_lfm2(facts),
        **_experts(facts),
        "num_dense_layers": facts.number("leading_dense_block_count"),
        "use_expert_bias": facts.has("exp_probs_b.bias"),
    }


def _routed(facts: Facts) -> Values:
    """Return the keys that describe the experts of DeepSeek and GLM 4.5."""
    shared = facts.number("expert_shared_count")
    return {
        "n_routed_experts": facts.number("expert_count"),
        "n_shared_experts": shared,
        "first_k_dense_replace": facts.number("leading_dense_block_count"),
    }


def _deepseek2(facts: Facts) -> Values:
    """Return DeepSeek's keys; only V3 has a routing bias or sigmoid gates."""
    is_v3 = facts.has("exp_probs_b.bias", "exp_probs_b") or facts.number("expert_gating_func") == 2  # noqa: PLR2004 - sigmoid
    rotated = facts.number("rope.dimension_count")
    keys, values = (
        facts.number(f"attention.{which}_length_mla") or facts.number(f"attention.{which}_length")
        for which in ("key", "value")
    )
    return {
        **_routed(facts),
        **_drafters(facts),
        "model_type": "deepseek_v3" if is_v3 else "deepseek_v2",
        "architectures": ["DeepseekV3ForCausalLM" if is_v3 else "DeepseekV2ForCausalLM"],
        "kv_lora_rank": facts.number("attention.kv_lora_rank"),
        "q_lora_rank": facts.number("attention.q_lora_rank"),
        "qk_rope_head_dim": rotated,
        "qk_nope_head_dim": keys - rotated if keys and rotated else None,
        "v_head_dim": values,
        "attention_bias": facts.has("attn_kv_a_mqa.bias"),
    }


def _drafters(facts: Facts) -> Values:
    """Return the layer counts; drafting layers are subtracted from GGUF's block_count."""
    drafting, blocks = facts.number("nextn_predict_layers") or 0, facts.number("block_count")
    return {
        "num_nextn_predict_layers": drafting,
        "num_hidden_layers": None if blocks is None else blocks - drafting,
    }


def _glm4_moe(facts: Facts) -> Values:
    return {**_routed(facts), **_drafters(facts), **_normed_heads("use_qk_norm")(facts)}


def _bert(facts: Facts) -> Values:
    return {"type_vocab_size": facts.header.integer("tokenizer.ggml.token_type_count")}


def _t5(facts: Facts) -> Values:
    gated = any(name.endswith("ffn_gate.weight") for name in facts.shapes)
    return {
        "d_model": facts.number("embedding_length"),
        "d_ff": facts.number("feed_forward_length"),
        "d_kv": facts.number("attention.key_length"),
        "num_layers": facts.number("block_count"),
        "num_decoder_layers": facts.number("decoder_block_count"),
        "num_heads": facts.number("attention.head_count"),
        "relative_attention_num_buckets": facts.number("attention.relative_buckets_count"),
        "feed_forward_proj": "gated-gelu" if gated else "relu",
    }


ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        # BERT's pooler is never stored; loading initializes one for the class that has it.
        "bert": Architecture("bert", "BertForMaskedLM", _bert, target="BertModel"),
        "bloom": Architecture("bloom", "BloomForCausalLM", tied=True),
        "cohere2": Architecture("cohere2", "Cohere2ForCausalLM", tied=True),
        "command-r": Architecture(
            "cohere", "CohereForCausalLM", _normed_heads("use_qk_norm"), tied=True
        ),
        "deepseek2": Architecture(
            "deepseek_v3", "DeepseekV3ForCausalLM", _deepseek2, nulls=("q_lora_rank",)
        ),
        "falcon": Architecture("falcon", "FalconForCausalLM", _falcon, tied=True),
        "gemma": Architecture("gemma", "GemmaForCausalLM", tied=True),
        "gemma2": Architecture("gemma2", "Gemma2ForCausalLM", tied=True),
        "gemma3": Architecture("gemma3_text", "Gemma3ForCausalLM"),
        "glm4": Architecture("glm4", "Glm4ForCausalLM"),
        "glm4moe": Architecture("glm4_moe", "Glm4MoeForCausalLM", _glm4_moe),
        "gpt-oss": Architecture("gpt_oss", "GptOssForCausalLM", _local_experts),
        "gpt2": Architecture("gpt2", "GPT2LMHeadModel", _gpt2, tied=True),
        "gptneox": Architecture("gpt_neox", "GPTNeoXForCausalLM"),
        "granite": Architecture("granite", "GraniteForCausalLM"),
        "granitemoe": Architecture("granitemoe", "GraniteMoeForCausalLM", _local_experts),
        "lfm2": Architecture("lfm2", "Lfm2ForCausalLM", _lfm2),
        "lfm2moe": Architecture("lfm2_moe", "Lfm2MoeForCausalLM", _lfm2_moe),
        "llama": Architecture("llama", "LlamaForCausalLM", _mixtral),
        "mamba": Architecture("mamba", "MambaForCausalLM", _mamba),
        "mistral3": Architecture("mistral", "MistralForCausalLM", _mixtral),
        "modern-bert": Architecture("modernbert", "ModernBertModel"),
        "mpt": Architecture("mpt", "MptForCausalLM", tied=True),
        "olmo2": Architecture("olmo2", "Olmo2ForCausalLM"),
        "olmoe": Architecture("olmoe", "OlmoeForCausalLM", _experts),
        "phi2": Architecture("phi", "PhiForCausalLM", _normed_heads("qk_layernorm")),
        "phi3": Architecture("phi3", "Phi3ForCausalLM"),
        "qwen2": Architecture("qwen2", "Qwen2ForCausalLM"),
        "qwen2moe": Architecture("qwen2_moe", "Qwen2MoeForCausalLM", _qwen2_moe),
        "qwen2vl": Architecture("qwen2", "Qwen2ForCausalLM"),
        "qwen3": Architecture("qwen3", "Qwen3ForCausalLM"),
        "qwen3moe": Architecture("qwen3_moe", "Qwen3MoeForCausalLM", _experts),
        "qwen3vl": Architecture("qwen3", "Qwen3ForCausalLM"),
        "qwen3vlmoe": Architecture("qwen3_moe", "Qwen3MoeForCausalLM", _experts),
        "smollm3": Architecture("smollm3", "SmolLM3ForCausalLM"),
        "stablelm": Architecture("stablelm", "StableLmForCausalLM", _stablelm),
        "starcoder": Architecture("gpt_bigcode", "GPTBigCodeForCausalLM", _starcoder, tied=True),
        "starcoder2": Architecture("starcoder2", "Starcoder2ForCausalLM", _starcoder2),
        "t5": Architecture("t5", "T5ForConditionalGeneration", _t5),
        "t5encoder": Architecture("t5", "T5EncoderModel", _t5),
    }
)
