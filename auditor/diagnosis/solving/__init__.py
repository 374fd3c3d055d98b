"""The search for config values under which the config implies the stored tensors.

`joint` solves for all keys at once, with changes from `candidates` and lists from `layer_lists`;
`open_keys` names the keys that no shape determines, and `determined` proves the values that shapes
determine. A Dim is a size as a polynomial in config keys: `formulas` solves it for one key,
`outline` lists the tensors and Dims of a tree of blocks. `inventories` builds such a tree from a
list of tensors, `keys` lists the keys of a config under the config's own spelling, and
`trials` compares the tree of a changed config with the stored tensors, by one tensor of each kind
of names.
"""
