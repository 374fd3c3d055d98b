"""quantization-not-applied: the config declares packed weights, and the files hold plain ones.

quantization-undeclared: the files hold packed weights, and the config declares none.

To do: Upload config and weights of one save: packed weights with the `quantization_config` that was
used to pack them, or plain weights without one.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from auditor.analytic.outline import shapes_in
from auditor.checkpoint.changes import with_values
from auditor.diagnosis.case import Case, Undoing
from auditor.layouts import settings_of_files
from auditor.layouts.packing import Stored
from auditor.tensors import StoredTensor

KEY = "quantization_config"
_PACKED = ("F8_", "F4", "F6_")  # start of dtypes of at most one byte, which need scales
_INTEGERS = ("I32", "I8", "U8")  # dtypes of packed weights whose layout is not the declared one
_SHOWN = {"bits", "group_size", "weight_block_size", "format", "bnb_4bit_quant_type"}
# Findings that wrong settings cause; if tensors are only missing, another cause applies.
SYMPTOMS = frozenset({"unexpected", "mismatched", "bad-quantization"})


def undoings(case: Case) -> Iterator[Undoing]:
    if SYMPTOMS.isdisjoint(finding.kind for finding in case.alarms):
        return
    declared = case.config.get(KEY)
    if declared is None:
        yield from (_undeclared(case, settings) for settings in settings_held(case))
        return
    if any(map(is_packed, case.stored)) or any(one.dtype in _INTEGERS for one in case.strange):
        return
    method = declared.get("quant_method") if isinstance(declared, Mapping) else None
    yield Undoing(
        cause="quantization-not-applied",
        snapshot=with_values(case.snapshot, {KEY: None}),
        fields=((KEY, method, None),),
        summary=f"the config declares packed weights{f' of {method}' if method else ''}, the files "
        "hold plain ones",
        fix=f"remove {KEY} from config.json, or upload the packed weights",
        evidence=("read as plain weights, all names and shapes are expected",),
    )


def is_packed(tensor: StoredTensor) -> bool:
    """Whether the tensor has a dtype that only packed weights have."""
    return tensor.dtype is not None and tensor.dtype.startswith(_PACKED)


def settings_held(case: Case) -> Iterator[dict[str, Any]]:
    """Return the quantization settings that fit the stored packed tensors."""
    expected = case.own_tree
    implied = shapes_in(expected.tree, expected.prefix) if expected else lambda _: None
    return settings_of_files(Stored(case.stored), implied)


def _undeclared(case: Case, settings: dict[str, Any]) -> Undoing:
    method = settings.get("quant_method", "MLX")
    key = KEY if "quant_method" in settings else "quantization"
    text = ", ".join(f"{name} {value}" for name, value in settings.items() if name in _SHOWN)
    return Undoing(
        cause="quantization-undeclared",
        snapshot=with_values(case.snapshot, {key: settings}),
        fields=((key, None, settings),),
        summary=f"the weights are packed by {method}{f' ({text})' if text else ''}, and the config "
        f"has no {key}",
        fix=f"add {key} to config.json",
        evidence=(f"the packed tensors have the shapes of {method}",),
    )
