from hypothesis import strategies as st
from support.strategies.clip import text_values, vision_values
from support.strategies.common import labels, sizes

_TEXT = text_values(projection_size=st.none() | sizes(9))
_VISION = vision_values(num_channels=sizes(4), vision_use_head=st.booleans())

VALUES = {
    "siglip": st.builds(
        lambda towers, labels: towers | labels,
        st.fixed_dictionaries({}, optional={"text_config": _TEXT, "vision_config": _VISION}),
        labels(),
    ),
    "siglip_text_model": _TEXT,
    "siglip_vision_model": _VISION,
}
