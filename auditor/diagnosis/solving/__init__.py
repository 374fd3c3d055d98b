"""The search for config values under which the config implies the stored tensors.

`joint` solves for all keys at once, with changes from `candidates` and lists from `layer_lists`;
`open_keys` names what no shape determines, and `determined` proves what shapes do. `formulas`
solves a Dim for one of its keys, `outline` lists the tensors and Dims of a tree of blocks,
`inventories` makes such a tree of what the oracle lists, `keys` lists the keys of a config as it
spells them, and `trials` compares the tree of a changed config with the stored tensors, by one
tensor of each kind.
"""
