"""Qwen 3.5 with experts, of which one more serves every token."""

from types import MappingProxyType

from msgspec.structs import replace

from auditor.analytic.catalogue import Family
from auditor.analytic.families import qwen3_5
from auditor.analytic.families._fused_experts import FUSED_EXPERTS
from auditor.analytic.families._qwen3_5 import TEXT_RENAMES, register
from auditor.analytic.families.qwen2_moe import QWEN2_MOE, shared_and_sparse_mlp
from auditor.analytic.family import LoadingFacts, loads

TEXT = Family(
    model_type="qwen3_5_moe_text",
    prefix="model",
    base="Qwen3_5MoeTextModel",
    keys=(
        "vocab_size hidden_size num_hidden_layers num_attention_heads num_key_value_heads "
        "head_dim attention_bias linear_conv_kernel_dim linear_key_head_dim "
        "linear_value_head_dim linear_num_key_heads linear_num_value_heads layer_types "
        "tie_word_embeddings moe_intermediate_size shared_expert_intermediate_size "
        "num_experts num_experts_per_tok"
    ),
    own=MappingProxyType(
        {"intermediate_size": 12288, "full_attention_interval": 4, "mtp_num_hidden_layers": 0}
    ),
    letters=QWEN2_MOE.letters,
)
VISION = replace(qwen3_5.VISION, model_type="qwen3_5_moe_vision", base="Qwen3_5MoeVisionModel")
QWEN3_5_MOE = replace(qwen3_5.QWEN3_5, model_type="qwen3_5_moe", base="Qwen3_5MoeModel")

register(QWEN3_5_MOE, TEXT, VISION, shared_and_sparse_mlp)

loads(
    "qwen3_5_moe",
    LoadingFacts(
        inside=(("language_model", "text_config", "qwen3_5_moe_text"),),
        silent=("^mtp.*",),
    ),
)
loads(
    "qwen3_5_moe_text",
    LoadingFacts(rules=(*TEXT_RENAMES, *FUSED_EXPERTS), silent=("^mtp.*",), rotary=True),
)
loads("qwen3_5_moe_vision", LoadingFacts(silent=("^mtp.*",)))
loads("Qwen3_5MoeForCausalLM", LoadingFacts(silent=("^model.visual.*",)))
