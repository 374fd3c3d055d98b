"""The keys under which configs state the settings of a quantization method, and its lists."""

from collections.abc import Mapping
from typing import Any

# The key of the list of unpacked modules, by method; then keys that only configs declare.
_LIST_OF = {
    **dict.fromkeys(("awq", "bitnet", "eetq", "fp8", "mxfp4"), "modules_to_not_convert"),
    **dict.fromkeys(("compressed-tensors", "modelopt"), "ignore"),
    "bitsandbytes": "llm_int8_skip_modules",
    "aqlm": "linear_weights_not_to_quantize",
}
_LISTS = (*dict.fromkeys(_LIST_OF.values()), "ignored_layers", "exclude_modules")
# How a list names all modules with the same last part of their names; other libraries list that
# part.
SUFFIX_OF = {"compressed-tensors": r"re:.*\.{}$", "modelopt": "*.{}"}
_OLDER_KEYS = {"bits": "w_bit", "group_size": "q_group_size"}  # keys of older AutoAWQ


def list_of_unpacked(declared: Mapping[str, Any], method: str) -> str:
    """Return the key of the list of unpacked modules: the declared one, else the method's."""
    return next((one for one in _LISTS if one in declared), _LIST_OF.get(method, ""))


def spelt_as(declared: Mapping[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings under the config's keys; bitsandbytes' bits become its two flags."""
    renamed = dict(settings)
    for key, older in _OLDER_KEYS.items():
        if key in renamed and older in declared:
            renamed[older] = renamed.pop(key)
    groups, own = renamed.get("config_groups"), declared.get("config_groups")
    if isinstance(groups, Mapping) and isinstance(own, Mapping) and len(own) == 1:
        renamed["config_groups"] = dict.fromkeys(own, groups["group_0"])
    if renamed.get("quant_method") == "bitsandbytes":
        is_4bit = renamed.get("load_in_4bit") is True
        renamed |= {"load_in_4bit": is_4bit, "load_in_8bit": not is_4bit}
    return renamed
