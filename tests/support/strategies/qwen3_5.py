from typing import Any

from hypothesis import strategies as st
from support.strategies.common import Values, decoder_values, labels, sizes, with_layer_types
from support.strategies.qwen2_vl import visual_values, vlm_values


def text_values(**options: st.SearchStrategy[Any]) -> st.SearchStrategy[Values]:
    """A decoder whose layers are said one by one, or by the interval between two of a kind."""
    return with_layer_types(
        decoder_values(
            head_dim=st.sampled_from([2, 6]),
            attention_bias=st.booleans(),
            linear_conv_kernel_dim=sizes(4),
            linear_key_head_dim=sizes(4),
            linear_value_head_dim=sizes(4),
            linear_num_key_heads=sizes(3),
            linear_num_value_heads=sizes(3),
            full_attention_interval=sizes(4),
            mtp_num_hidden_layers=st.none() | sizes(2, least=0),
            **options,
        ),
        ("linear_attention", "full_attention", "sliding_attention"),
    )


VISION = visual_values(
    "hidden_size",
    intermediate_size=sizes(9),
    out_hidden_size=sizes(9),
    num_position_embeddings=sizes(9),
)


def composite_values(text: st.SearchStrategy[Values]) -> st.SearchStrategy[Values]:
    return st.builds(lambda parts, labels: parts | labels, vlm_values(text, VISION), labels())


_TEXT = text_values()
JEV = {"JevForDecision": "it is built from a config of its own type, jev, whatever it is given"}
OF_THE_TEXT = "it reads the config in text_config, whose type has it"


_TEXT_OF_EXPERTS = text_values(
    moe_intermediate_size=sizes(9),
    shared_expert_intermediate_size=sizes(9),
    num_experts=sizes(3),
    num_experts_per_tok=sizes(2),
)


VALUES = {
    "qwen3_5": composite_values(_TEXT),
    "qwen3_5_text": _TEXT,
    "qwen3_5_vision": VISION,
    "qwen3_5_moe": composite_values(_TEXT_OF_EXPERTS),
    "qwen3_5_moe_text": _TEXT_OF_EXPERTS,
    "qwen3_5_moe_vision": VISION,
}
LEFT_OUT = {
    "qwen3_5": JEV | {"Qwen3_5ForCausalLM": OF_THE_TEXT},
    "qwen3_5_text": JEV,
    "qwen3_5_vision": {},
    "qwen3_5_moe": JEV | {"Qwen3_5MoeForCausalLM": OF_THE_TEXT},
    "qwen3_5_moe_text": {},
    "qwen3_5_moe_vision": {},
}
