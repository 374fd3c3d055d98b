"""unmerged-adapter: a model file contains the layers of an adapter that was not merged.

To do: Save the model that `merge_and_unload()` of PEFT returns, or publish the adapter alone, with
its `adapter_config.json`.
"""

from collections.abc import Iterator

from auditor.analytic.adapters.own_names import BASE, ORIGINAL, SAVED, is_own, name_in_model
from auditor.checkpoint.change import renamed
from auditor.diagnosis.case import Case, Proposal

CAUSE = "unmerged-adapter"


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield the model without the adapter, with layers named as in the base model."""
    if case.is_adapter:
        return
    own = [one.name for one in case.unmatched if is_own(one.name)]
    wrapped = [one.name for one in case.unmatched if BASE in one.name or ORIGINAL in one.name]
    if not (own or wrapped):
        return
    without = {SAVED.sub(ORIGINAL, one.name) for one in case.stored if SAVED.search(one.name)}
    without.update(own)
    replacements = {
        one.name: () if one.name in without else (renamed(one, name_in_model(one.name)),)
        for one in case.stored
        if one.name in without or name_in_model(one.name) != one.name
    }
    new_names = [tensor.name for tensors in replacements.values() for tensor in tensors]
    if len(set(new_names)) < len(new_names):
        return
    fix = "load the model with PEFT and save what merge_and_unload() returns; or save the adapter "
    fix += "alone, with its adapter_config.json"
    if "_class_name" in case.config:
        fix = "call fuse_lora() and then unload_lora_weights() of the pipeline before you save it; "
        fix += "or save the adapter alone, with save_lora_weights()"
    layers = f", {len(wrapped):,} to the layers that it changes" if wrapped else ""
    yield Proposal(
        cause=CAUSE,
        change=case.replacing(replacements),
        summary="an adapter was saved with its model and not merged into it: "
        f"{len(own):,} tensors belong to the adapter{layers}",
        fix=fix,
        evidence=(*own[:2], *wrapped[:2]),
    )
