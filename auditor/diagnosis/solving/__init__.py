"""The search for config values under which the config implies the stored tensors.

`joint` solves for all keys at once, with changes from `candidates` and lists from `layer_items`;
`open_keys` names the keys that no shape determines. A solution is compared with the stored tensors
by `auditor/reconciler/by_kind/`.
"""
