from hypothesis import strategies as st
from support.strategies.bert import VALUES as BERT
from support.strategies.common import Values
from support.strategies.gpt2 import VALUES as GPT2
from support.strategies.llava import of_type
from support.strategies.vit import VALUES as VIT


@st.composite
def _values(draw: st.DrawFn) -> Values:
    """Either part may be left out: a ViT and a BERT of full width, which need a layer between."""
    encoders, decoders = VIT["vit"], BERT["bert"] | of_type("gpt2", GPT2["gpt2"])
    encoder = draw(encoders | of_type("vit", encoders))
    decoder = draw(decoders)
    said = {"cross_attention_hidden_size": encoder.get("hidden_size", 768)}
    return draw(
        st.sampled_from(
            [
                {"encoder": encoder},
                {"decoder": decoder},
                {"encoder": encoder, "decoder": decoder},
                {"encoder": encoder, "decoder": decoder | said},
                {"encoder": encoder, "decoder": decoder | {"cross_attention_hidden_size": None}},
            ]
        )
    )


VALUES = {"vision-encoder-decoder": _values()}
