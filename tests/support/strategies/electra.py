from hypothesis import strategies as st
from support.strategies.bert import encoder_values
from support.strategies.common import Values, sizes

_OPTIONS = {"summary_use_proj": st.booleans(), "summary_proj_to_labels": st.booleans()}


def _as_wide(values: Values) -> Values:
    """Embeddings as wide as the layers, so that nothing stands between the two."""
    return {**values, "embedding_size": values.get("hidden_size", 256)}


VALUES = {
    "electra": encoder_values(embedding_size=sizes(12), **_OPTIONS)
    | encoder_values(**_OPTIONS).map(_as_wide)
}
