"""What a config would have to say for the stored tensors to be those that it implies.

`formulas` solves a Dim for one of its keys, `outline` lists a tree of blocks with its Dims, `keys`
says which keys a config has and how it spells them, and `trials` compares a changed config's tree
with what is stored, by one tensor of each kind.
"""
