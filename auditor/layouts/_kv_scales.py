"""Bookkeeping that several layouts share: scales of the KV cache, single numbers."""

from auditor.layouts.packing import Members, PackingLedger
from auditor.tensors import StoredTensor

# Below an attention module, or below its k_proj and v_proj.
CACHE = frozenset(
    {"kv_scale", "k_scale", "v_scale", "q_scale", "k_zero_point", "v_zero_point", "q_zero_point"}
    | {"k_global_scale", "v_global_scale", "q_global_scale"}
)


def note_kv_scales(parts: Members, ledger: PackingLedger) -> None:
    """Scales of queries, keys and values: one for the tensor, or (heads, 1, 1)."""
    found = [parts[key] for key in sorted(CACHE & parts.keys())]
    if not found:
        return
    ledger.note("scales of the KV cache", *found)
    for tensor in found:
        if tensor.shape is not None and tensor.elements != 1 and tensor.shape[1:] != (1, 1):
            reason = (
                f"a scale of the KV cache is {tensor.shape}, expected one number, or one a head"
            )
            ledger.fault(reason, tensor)


def require_one_element(what: str, tensor: StoredTensor | None, ledger: PackingLedger) -> None:
    """A fault where a tensor that serves all of a weight has more or fewer than one element."""
    if tensor is not None and tensor.elements not in {None, 1}:
        ledger.fault(f"{what} is {tensor.shape}; one number is needed", tensor)
