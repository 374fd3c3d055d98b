from hypothesis import strategies as st
from support.strategies.bart import towers
from support.strategies.common import sizes

VALUES = {
    "marian": towers(
        decoder_vocab_size=st.none() | sizes(50),
        share_encoder_decoder_embeddings=st.booleans(),
    )
}
