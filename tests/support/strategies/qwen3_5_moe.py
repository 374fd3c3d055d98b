from support.strategies.common import sizes
from support.strategies.qwen3_5 import JEV, OF_THE_TEXT, VISION, composite_values, text_values

_TEXT = text_values(
    moe_intermediate_size=sizes(9),
    shared_expert_intermediate_size=sizes(9),
    num_experts=sizes(3),
    num_experts_per_tok=sizes(2),
)

VALUES = {
    "qwen3_5_moe": composite_values(_TEXT),
    "qwen3_5_moe_text": _TEXT,
    "qwen3_5_moe_vision": VISION,
}
LEFT_OUT = {
    "qwen3_5_moe": JEV | {"Qwen3_5MoeForCausalLM": OF_THE_TEXT},
    "qwen3_5_moe_text": {},
    "qwen3_5_moe_vision": {},
}
