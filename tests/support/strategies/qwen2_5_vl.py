from support.strategies.common import sizes
from support.strategies.qwen2_vl import flat_or_not, text_values, visual_values

_VISION = visual_values(
    "hidden_size",
    intermediate_size=sizes(9),
    out_hidden_size=sizes(9),
)

VALUES = {"qwen2_5_vl": flat_or_not(text_values, _VISION), "qwen2_5_vl_text": text_values}
