from support.strategies.vit import vit_values

VALUES = {"deit": vit_values()}
