from support.strategies._gpt import gpt_values

_OWN = {
    "hidden_size": "n_embed",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}

VALUES = {
    "bloom": gpt_values(_OWN).map(
        lambda values: {"hidden_size": 7} | values if "n_embed" in values else values
    )
}
