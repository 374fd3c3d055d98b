"""head-not-saved: the output layer of an untied model is absent; all other tensors are stored.

The same cause covers a classifier whose head is absent while its base model is complete, if no
class without a head fits.

To do: Set `tie_word_embeddings` to true if the model shares its output layer with its input
embeddings; else save it again, with its output layer.
"""

import re
from collections.abc import Iterator

from msgspec.structs import replace

from auditor.analytic.config_keys import value_at
from auditor.diagnosis.case import Case, Proposal
from auditor.diagnosis.causes.other_class import holds_another_head

CAUSE = "head-not-saved"
_KEY = "tie_word_embeddings"
# The modules of output layers, in the families that have one.
_HEAD = re.compile(
    r"(^|\.)(lm_head|embed_out|proj_out|cls|predictions|vocab_projector|decoder"
    r"|lm_loss|generator_lm_head|pred_layer|output_projection)\."
)
_INPUTS = re.compile(r"embed_tokens|embeddings|\.wte\.|shared")


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield the config with tied embeddings, if only heads are missing and none is stored."""
    patterns = [kind.pattern for kind in case.missing.kinds]
    are_heads = all(_HEAD.search(one) and not _INPUTS.search(one) for one in patterns)
    declared = value_at(case.config, _KEY)
    if not patterns or not are_heads or declared is True or holds_another_head(case):
        return
    tied = case.setting({_KEY: True})
    modules = {name.rpartition(".")[0] for name in case.missing.names}
    beside = [name for name in case.shapes if name.rpartition(".")[0] in modules]
    # A stored bias of the head is its own tensor, or an alias of a bias that is tied as well.
    without_bias = replace(tied, tensors=dict.fromkeys(beside, ()))
    for change in (tied, without_bias) if beside else (tied,):
        yield Proposal(
            cause=CAUSE,
            change=change,
            fields=((_KEY, declared, True),),
            summary=f"{_absent(case)}, and the config does not tie it to the input embeddings",
            fix=f"set {_KEY} to true in config.json if the two share their values, or save the "
            "model again with its output layer",
            evidence=("tied, nothing is missing",),
        )


def of_classifier(case: Case) -> Iterator[Proposal]:
    """Yield the checkpoint with the missing head, if the base model is stored completely."""
    if {finding.kind for finding in case.alarms} != {"missing"} or case.target is not None:
        return
    if holds_another_head(case):
        return
    if any(part.isdecimal() for kind in case.missing.kinds for part in kind.parts):
        return
    implied = case.implied(case.snapshot) or {}
    base = {name.partition(".")[0] for name in implied.keys() - case.missing.by_name.keys()}
    heads = {name.partition(".")[0] for name in case.missing.names}
    if len(base) == 1 and base.isdisjoint(heads):
        yield Proposal(
            cause=CAUSE,
            change=case.adding_missing(),
            summary=f"{_absent(case)}: loading would make it up at random",
            fix="save the model again with its output layer, or declare in architectures the "
            "class of the base model alone",
            evidence=("all else is stored",),
        )


def _absent(case: Case) -> str:
    return f"the output layer ({', '.join(case.missing.names[:2])}) is not stored"
