"""unmerged-adapter: a model file contains the layers of an adapter that was not merged.

To do: Save the model that `merge_and_unload()` of PEFT returns, or publish the adapter alone, with
its `adapter_config.json`.
"""

import re
from collections.abc import Iterator

from auditor.checkpoint.changes import renamed, with_tensors
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.causes._of_adapters import is_adapter
from auditor.diagnosis.causes.fused_names import Replacements, renames_of

CAUSE = "unmerged-adapter"

# Parts of the names of an adapter's own tensors in PEFT: LoRA and variants, IA3, OFT, prompts. The
# adapter's name, such as `default`, may follow.
_OWN = re.compile(
    r"\.(lora_\w+|ia3_l|vera_lambda_[bd]|hada_[wt]\w*|lokr_[wt]\w*|oft_[rs]|boft_[RrSs]|ranknum"
    r"|adaption_prompt|adaption_gate|fourierft_spectrum|randlora_\w+|delora_\w+)(\.|$)"
    r"|(^|\.)prompt_encoder\.[^.]+\.embedding"
)
_BASE = ".base_layer."
_ORIGINAL = ".original_module."
_SAVED = re.compile(r"\.modules_to_save\.[^.]+\.")
_ROOT = re.compile(r"(?<![^.])base_model\.model\.")


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the model without the adapter, with layers named as in the base model."""
    if is_adapter(case):
        return
    own = [one.name for one in case.strange if _OWN.search(one.name)]
    wrapped = [one.name for one in case.strange if _BASE in one.name or _ORIGINAL in one.name]
    if not (own or wrapped):
        return
    without = {_SAVED.sub(_ORIGINAL, one.name) for one in case.stored if _SAVED.search(one.name)}
    without.update(own)
    replacements: Replacements = {
        one.name: () if one.name in without else (renamed(one, _of_model(one.name)),)
        for one in case.stored
        if one.name in without or _of_model(one.name) != one.name
    }
    new_names = [tensor.name for tensors in replacements.values() for tensor in tensors]
    if len(set(new_names)) < len(new_names):
        return
    layers = f", {len(wrapped):,} to the layers that it changes" if wrapped else ""
    yield Undoing(
        cause=CAUSE,
        snapshot=with_tensors(case.snapshot, replacements),
        renames=renames_of(replacements),
        summary="an adapter was saved with its model and not merged into it: "
        f"{len(own):,} tensors belong to the adapter{layers}",
        fix="load the model with PEFT and save what merge_and_unload() returns; or save the "
        "adapter alone, with its adapter_config.json",
        evidence=(*own[:2], *wrapped[:2]),
    )


def _of_model(name: str) -> str:
    """Return the name without the wrappers that PEFT adds."""
    name = _ROOT.sub("", name).replace(_BASE, ".").replace(_ORIGINAL, ".")
    return _SAVED.sub(".", name)
