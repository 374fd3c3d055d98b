"""The search for config values under which the config implies the stored tensors.

`formulas` solves a Dim for one of its keys, `outline` lists the tensors and Dims of a tree of
blocks, `keys` lists the keys of a config as it spells them, and `trials` compares the tree of a
changed config with the stored tensors, by one tensor of each kind.
"""
