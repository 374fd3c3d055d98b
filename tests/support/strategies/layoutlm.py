from support.strategies.bert import encoder_values
from support.strategies.common import sizes

VALUES = {"layoutlm": encoder_values(max_2d_position_embeddings=sizes(20))}
