from support.strategies._gpt import OF_GPT2, gpt_values
from support.strategies.common import sizes

VALUES = {"openai-gpt": gpt_values(OF_GPT2, max_position_embeddings=sizes(20))}
