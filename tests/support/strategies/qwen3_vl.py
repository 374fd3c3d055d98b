from hypothesis import strategies as st
from support.strategies.common import sizes
from support.strategies.qwen import VALUES as QWEN3
from support.strategies.qwen2_vl import visual_values, vlm_values

_VISION = visual_values(
    "hidden_size",
    intermediate_size=sizes(9),
    out_hidden_size=sizes(9),
    num_position_embeddings=sizes(9),
    deepstack_visual_indexes=st.lists(sizes(3), max_size=3),
)

VALUES = {
    "qwen3_vl": vlm_values(QWEN3["qwen3"], _VISION),
    "qwen3_vl_text": QWEN3["qwen3"],
    "qwen3_vl_vision": _VISION,
}
