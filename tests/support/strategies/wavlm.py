from support.strategies.common import sizes
from support.strategies.wav2vec2 import by_class

VALUES = by_class("wavlm", "WavLMModel", "WavLMForCTC", "WavLMForXVector", num_buckets=sizes(9))
