from support.strategies.common import decoder_values, uneven_heads

VALUES = {"phi3": decoder_values(**uneven_heads())}
