"""What vLLM makes of packed weights that are incomplete, or packed in a part of a fused layer.

vLLM joins projections such as q, k and v in one layer, which has one scheme. It looks for missing
parameters in plain models alone (`track_weights_loading` in its default loader, 0.33).
"""

from collections.abc import Collection, Iterable, Mapping

from auditor.engines.adapters import modules_of

# In which ways packed tensors differ from what the config declares.
LACKING = "lacking"  # a tensor is not stored
UNLISTED = "unlisted"  # a module is plain that the config packs
SURPLUS = "surplus"  # a tensor of a packed module is stored that the config leaves out
UNDECLARED = "undeclared"  # the config declares no packing
OTHER = "other"
NOT_EXPECTED = "they are not the expected ones"
# Methods with which vLLM 0.33 was tried on 17 dense architectures, one change at a time.
_TRIED = frozenset({"fp8", "compressed-tensors", "gptq", "awq"})
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


def outcome_of_faults(
    faults: frozenset[str], method: str, names: Collection[str], *, is_dense: bool
) -> tuple[bool | None, str]:
    """Return whether vLLM loads packed weights with such faults, and a sentence on them.

    A name without a parameter raises in a dense model; loaders of experts skip some of these names.
    A plain weight is cast if the packed one has the same name, and GPTQ and AWQ read from the files
    what is packed.
    """
    refused = False if is_dense else None
    if UNDECLARED in faults and faults <= {UNDECLARED, LACKING}:
        return refused, "the weights are packed, and config.json declares no quantization"
    is_unclear = not faults.isdisjoint({OTHER, UNDECLARED}) or faults >= {UNLISTED, LACKING}
    if is_unclear or method not in _TRIED:
        return None, NOT_EXPECTED
    if SURPLUS in faults:
        return refused, "it has no parameter for a scale or a packed tensor that is stored"
    if UNLISTED in faults and any(name.endswith(".weight_packed") for name in names):
        return refused, "it has no parameter for a plain weight outside the list"
    what = "a module outside the list is plain" if UNLISTED in faults else "tensors are not stored"
    return True, f"it does not notice that {what}"


_USUAL: Mapping[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
}
