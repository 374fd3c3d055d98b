from analytic.strategies.bart import towers
from analytic.strategies.common import sizes
from hypothesis import strategies as st

VALUES = {
    "marian": towers(
        decoder_vocab_size=st.none() | sizes(50),
        share_encoder_decoder_embeddings=st.booleans(),
    )
}
