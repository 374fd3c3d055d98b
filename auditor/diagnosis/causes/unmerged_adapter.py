"""unmerged-adapter: a model file contains the layers of an adapter that was not merged.

To do: Save the model that `merge_and_unload()` of PEFT returns, or publish the adapter alone, with
its `adapter_config.json`.
"""

from collections.abc import Iterator

from auditor.analytic.adapters.own_names import BASE, ORIGINAL, SAVED, is_own, name_in_model
from auditor.checkpoint.changes import renamed, with_tensors
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.causes._of_adapters import is_adapter
from auditor.diagnosis.causes.fused_names import Replacements, renames_of

CAUSE = "unmerged-adapter"


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the model without the adapter, with layers named as in the base model."""
    if is_adapter(case):
        return
    own = [one.name for one in case.strange if is_own(one.name)]
    wrapped = [one.name for one in case.strange if BASE in one.name or ORIGINAL in one.name]
    if not (own or wrapped):
        return
    without = {SAVED.sub(ORIGINAL, one.name) for one in case.stored if SAVED.search(one.name)}
    without.update(own)
    replacements: Replacements = {
        one.name: () if one.name in without else (renamed(one, name_in_model(one.name)),)
        for one in case.stored
        if one.name in without or name_in_model(one.name) != one.name
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
