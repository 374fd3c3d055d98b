from support.strategies.t5 import t5_values

VALUES = {"mt5": t5_values()}
