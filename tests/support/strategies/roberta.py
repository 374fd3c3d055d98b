from support.strategies.bert import encoder_values

VALUES = {model_type: encoder_values() for model_type in ("roberta", "xlm-roberta", "camembert")}
