"""quantization-not-applied: the config declares packed weights, and the files hold plain ones.

quantization-undeclared: the files hold packed weights, and the config declares none.

To do: Upload config and weights of one save: packed weights with the `quantization_config` that
they were packed by, plain weights without one.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import with_values

_KEY = "quantization_config"
_SYMPTOMS = frozenset({"missing", "unexpected", "mismatched", "bad-quantization"})
_GROUPS = (128, 64, 32, -1)

# By a name that only this layout stores: what a config would say of it.
_BY_SUFFIX: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    ".weight_scale_inv": ({"quant_method": "fp8", "weight_block_size": [128, 128]},),
    ".g_idx": tuple(
        {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": False}
        for bits in (4, 8)
        for group in _GROUPS
    ),
    ".qzeros": tuple(
        {"quant_method": "awq", "bits": 4, "group_size": group, "version": "gemm"}
        for group in _GROUPS
    ),
    ".weight.quant_state.bitsandbytes__nf4": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    ),
    ".SCB": ({"quant_method": "bitsandbytes", "load_in_8bit": True},),
}


def undoings(case: Case) -> Iterator[Undoing]:
    kinds = {finding.kind for finding in case.alarms}
    if kinds.isdisjoint(_SYMPTOMS):
        return
    declared = case.config.get(_KEY)
    if declared is not None:
        method = declared.get("quant_method") if isinstance(declared, Mapping) else None
        yield Undoing(
            cause="quantization-not-applied",
            snapshot=with_values(case.snapshot, {_KEY: None}),
            fields=((_KEY, method, None),),
            summary=f"the config declares weights packed by {method}, the files hold plain ones",
            fix=f"remove {_KEY} from config.json, or upload the packed weights",
            evidence=("read as plain weights, all names and shapes are expected",),
        )
        return
    names = [tensor.name for tensor in case.stored]
    for suffix, settings in _BY_SUFFIX.items():
        count = sum(name.endswith(suffix) for name in names)
        for one in settings if count else ():
            yield Undoing(
                cause="quantization-undeclared",
                snapshot=with_values(case.snapshot, {_KEY: dict(one)}),
                fields=((_KEY, None, dict(one)),),
                summary=f"the weights are packed by {one['quant_method']}, and the config has no "
                f"{_KEY}",
                fix=f"add {_KEY} to config.json",
                evidence=(f"{count:,} names end with {suffix}",),
            )
