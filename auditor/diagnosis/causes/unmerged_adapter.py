"""unmerged-adapter: the layers of an adapter stand in what claims to be a whole model.

Or the other way round: the model under an adapter stands in the adapter's own file.

To do: Save what `merge_and_unload()` of PEFT returns, or publish the adapter alone, with its
`adapter_config.json`.
"""

import re
from collections.abc import Iterator

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.causes._of_adapters import is_adapter
from auditor.diagnosis.changes import with_tensors
from auditor.tensors import StoredTensor

CAUSE = "unmerged-adapter"

# What PEFT stores of an adapter itself: LoRA and its kin, IA3, OFT, prompts. `default` and the like
# stand behind, the adapter's name.
_OWN = re.compile(
    r"\.(lora_(A|B|E|embedding_A|embedding_B|magnitude_vector)|lora_\w+"
    r"|ia3_l|vera_lambda_[bd]|hada_[wt]\w*|lokr_[wt]\w*|oft_[rs]|boft_[RrSs]|ranknum"
    r"|adaption_prompt|adaption_gate|fourierft_spectrum|randlora_\w+|delora_\w+)(\.|$)"
    r"|(^|\.)prompt_encoder\.[^.]+\.embedding"
)
_BASE = ".base_layer."
_ORIGINAL = ".original_module."
_SAVED = re.compile(r"\.modules_to_save\.[^.]+\.")
_ROOT = "base_model.model."


def undoings(case: Case) -> Iterator[Undoing]:
    """The model under the adapter: base layers by their own names, and the adapter left out."""
    if not any(_OWN.search(kind.pattern) or _wraps(kind.pattern) for kind in case.strange_kinds):
        return
    if is_adapter(case):
        yield from _adapter_alone(case)
        return
    own = [one for one in case.strange if _OWN.search(one.name)]
    wrapped = [one for one in case.strange if _wraps(one.name)]
    saved = {_SAVED.sub(".", one.name) for one in case.stored if _SAVED.search(one.name)}
    instead: dict[str, tuple[StoredTensor, ...]] = {one.name: () for one in own}
    for tensor in case.stored:
        if tensor.name in instead:
            continue
        name = _of_model(tensor.name)
        if _ORIGINAL in tensor.name and tensor.name.replace(_ORIGINAL, ".") in saved:
            instead[tensor.name] = ()  # what was trained in its place is there too
        elif name != tensor.name:
            instead[tensor.name] = (tensor._replace(name=name),)
    kept = [new.name for made in instead.values() for new in made]
    if len(set(kept)) < len(kept):
        return
    yield Undoing(
        cause=CAUSE,
        snapshot=with_tensors(case.snapshot, instead),
        renames={name: made[0].name for name, made in instead.items() if made},
        summary=f"an adapter was saved with its model and not merged into it: {len(own):,} tensors "
        f"are its own, {len(wrapped):,} those of layers under it",
        fix="load the model with PEFT and save what merge_and_unload() returns; or save the "
        "adapter alone, with its adapter_config.json",
        evidence=tuple(one.name for one in (*own[:2], *wrapped[:2])),
    )


def _adapter_alone(case: Case) -> Iterator[Undoing]:
    """The adapter's tensors by the names of its file, without its own name, and no others."""
    instead: dict[str, tuple[StoredTensor, ...]] = {}
    for tensor in case.strange:
        *module, before, last = tensor.name.split(".")
        names = (".".join((*module, last)), ".".join((*module, before)))
        name = next((one for one in names if one in case.missing_names), None)
        instead[tensor.name] = (tensor._replace(name=name),) if name else ()
    beside = [name for name, made in instead.items() if not made]
    if any(name.endswith(f"{_BASE}weight") for name in beside):  # biases may be the adapter's
        yield Undoing(
            cause=CAUSE,
            snapshot=with_tensors(case.snapshot, instead),
            renames={name: made[0].name for name, made in instead.items() if made},
            summary=f"the state dict of a PeftModel was saved as its adapter: {len(beside):,} "
            "tensors are those of the model under it",
            fix="save the adapter by PeftModel.save_pretrained",
            evidence=tuple(beside[:2]),
        )


def _wraps(name: str) -> bool:
    return _BASE in name or _ORIGINAL in name


def _of_model(name: str) -> str:
    """The name without what PEFT puts around a module."""
    name = name.removeprefix(_ROOT).replace(_BASE, ".").replace(_ORIGINAL, ".")
    return _SAVED.sub(".", name)
