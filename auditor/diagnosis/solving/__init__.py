"""The search for config values under which the config implies the stored tensors.

`joint` solves for all keys at once, with changes from `candidates`, lists from `layer_lists` and
equations from `size_equations`; `open_keys` names the keys that no shape determines. `trials`
compares a tree with the stored tensors (`held_tensors`), and `limits` bounds the search.
"""
