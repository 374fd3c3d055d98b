"""The packed layout (quantization format) that config.json or a separate file declares.

All settings are untrusted.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from auditor.bounded.json_text import JsonFile
from auditor.errors import CheckpointError
from auditor.layouts.packing import Declared, PackingLedger
from auditor.messages import described

# Files beside config.json that declare the packing of the weights; the first existing file counts.
FILES = ("quantize_config.json", "quant_config.json", "hf_quant_config.json")

_UNNAMED = "an unnamed method"
_MLX = frozenset({"bits", "group_size"})

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
# Settings that shapes do not show, or that are compared by name elsewhere.
_UNSEEN = frozenset({"desc_act", "activation_scheme", "dynamic", "ignore", "targets", "version"})
_OLDER_KEYS = {"bits": "w_bit", "group_size": "q_group_size"}  # keys of older AutoAWQ


def declaration(values: Mapping[str, Any], packing: JsonFile | None) -> Declared | None:
    """Return the layout that the config declares, else the one of `packing`; None without one.

    The config, its text_config and MLX's own key may declare it. Raise CheckpointError if the
    declaration is not an object that names a method.
    """
    for where, key, settings in _declarations(values):
        if not isinstance(settings, Mapping):
            raise _refusal(where, settings)
        return Declared(method=_method(where, key, settings), settings=settings, where=where)
    return None if packing is None else _in_file(packing.name, packing.object)


def _declarations(values: Mapping[str, Any]) -> Iterator[tuple[str, str, object]]:
    inner, own = values.get("text_config"), values.get("quantization")
    if isinstance(own, Mapping) and _MLX.issubset(own):
        yield "quantization", "quantization", own  # first, as in mlx_lm
    for path, level in (("", values), ("text_config.", inner)):
        if not isinstance(level, Mapping):
            continue
        for key in ("quantization_config", "compression_config", "quantization"):
            if level.get(key) is not None:
                yield f"{path}{key}", key, level[key]


def _method(where: str, key: str, settings: Mapping[str, Any]) -> str:
    method = settings.get("quant_method")
    if method is None:
        return _implied(key, settings)
    if not isinstance(method, str):
        raise _refusal(f"{where}.quant_method", method, "a string is")
    return method.lower()


def _implied(key: str, settings: Mapping[str, Any]) -> str:
    """Return the method that a declaration without quant_method implies."""
    if settings.get("load_in_8bit") or settings.get("load_in_4bit"):
        return "bitsandbytes"
    if key == "compression_config":
        return "compressed-tensors"
    return "mlx" if _MLX.issubset(settings) else _UNNAMED


def _in_file(name: str, settings: Mapping[str, Any]) -> Declared:
    """Read a separate file: settings at the top (AutoGPTQ, AutoAWQ) or in an object (modelopt)."""
    if name == "hf_quant_config.json":
        inner = settings.get("quantization")
        if not isinstance(inner, Mapping):
            raise _refusal(f"quantization of {name}", inner)
        return Declared(method="modelopt", settings=inner, where=name)
    awq = name == "quant_config.json" or "w_bit" in settings
    method = settings.get("quant_method", "awq" if awq else "gptq")
    if not isinstance(method, str):
        raise _refusal(f"quant_method of {name}", method, "a string is")
    return Declared(method=method.lower(), settings=settings, where=name)


def _refusal(
    where: str, value: object, need: str = "an object with a quant_method is"
) -> CheckpointError:
    return CheckpointError(f"{where} is {described(value)}; {need} needed")


_SIDES = 2
_LONGEST = 1 << 24  # the longest side of a block or group, above the width of any layer


# --- settings -------------------------------------------------------------------------------------


def integer_setting(
    declared: Declared,
    key: str,
    allowed: Collection[int],
    ledger: PackingLedger,
    *,
    default: int | None = None,
) -> int | None:
    """Return the integer under a key; the default if it is absent.

    Report any other value as a fault, and return None.
    """
    value = declared.settings.get(key)
    if value is None:
        return default
    if type(value) is int and value in allowed:
        return value
    expected = (
        f"{allowed[0]} to {allowed[-1]:,}" if isinstance(allowed, range) else _listed(allowed)
    )
    ledger.fault(f"{key} of {declared.where} is {described(value)}; {expected} is needed")
    return None


def string_list(declared: Declared | None, key: str) -> frozenset[str]:
    """Return the strings in the list under a key; empty if the value is not a list."""
    value = declared.settings.get(key) if declared else None
    items = value if isinstance(value, list) else []
    return frozenset(item for item in items if isinstance(item, str))


def object_or_empty(value: object) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def block_sides(value: object) -> tuple[int, int] | None:
    """Return the two sides of a block such as `[128, 128]`; None for any other value."""
    if not isinstance(value, list) or len(value) != _SIDES:
        return None
    rows, columns = value
    are_valid = all(type(side) is int and 0 < side < _LONGEST for side in (rows, columns))
    return (rows, columns) if are_valid else None


def _listed(allowed: Collection[int]) -> str:
    *numbers, last = map(str, sorted(allowed))
    return f"{', '.join(numbers)} or {last}" if numbers else last


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


def differing(declared: Mapping[str, Any], held: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings whose stored value differs from the declared one, by dotted key."""
    changes: dict[str, Any] = {}
    for key, value in held.items():
        declared_value = declared.get(key)
        if isinstance(value, Mapping):
            if isinstance(declared_value, Mapping):
                inner = differing(declared_value, value)
                changes.update({f"{key}.{name}": one for name, one in inner.items()})
        elif key in declared and declared_value != value and key not in _UNSEEN:
            changes[key] = value
    return changes
