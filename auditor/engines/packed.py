"""What vLLM makes of packed weights that are incomplete, or packed in a part of a fused layer.

vLLM joins projections such as q, k and v in one layer, which has one scheme. It looks for missing
parameters in plain models alone (`track_weights_loading` in its default loader, 0.33).
"""

from collections.abc import Collection, Iterable, Mapping

from auditor.engines.adapters import modules_of

UNCHECKED = frozenset({"vllm"})  # engines that do not notice what a packed model lacks
_OF_BITSANDBYTES = ".weight."  # before absmax, quant_map and the state
_OWN = frozenset({"weight", "bias"})


def packed_modules(stored: Iterable[str], floats: Collection[str]) -> frozenset[str]:
    """Return the modules that have tensors beside a weight, or a weight that is not a float."""
    found = set()
    for name in stored:
        module, _, last = name.partition(_OF_BITSANDBYTES)[0].rpartition(".")
        if _OF_BITSANDBYTES in name:
            found.add(name.partition(_OF_BITSANDBYTES)[0])
        elif last not in _OWN or (last == "weight" and name not in floats):
            found.add(module)
    return frozenset(found)


def half_packed(
    architecture: str, stored: Iterable[str], floats: Collection[str]
) -> tuple[str, bool] | None:
    """Return a layer of which a part is packed and a part plain, and whether vLLM joins the parts.

    Return None if each layer is of one kind.
    """
    model = modules_of(architecture)
    joined = model.packed if model is not None and not model.error else _USUAL
    packed = packed_modules(stored, floats)
    plain = {one.removesuffix(".weight") for one in floats if one.endswith(".weight")} - packed
    whole_by_part = {part: whole for whole, parts in joined.items() for part in parts}
    kinds: dict[str, bool] = {}
    for is_packed, modules in ((True, packed), (False, plain)):
        for module in sorted(modules):
            path, _, last = module.rpartition(".")
            if last in whole_by_part:
                layer = f"{path}.{whole_by_part[last]}"
                if kinds.setdefault(layer, is_packed) is not is_packed:
                    return layer, joined is not _USUAL
    return None


_USUAL: Mapping[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
