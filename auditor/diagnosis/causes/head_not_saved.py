"""head-not-saved: the output layer of an untied model is absent; all other tensors are stored.

The same cause covers a classifier whose head is absent while its base model is complete, if no
class without a head fits.

To do: Set `tie_word_embeddings` to true if the model shares its output layer with its input
embeddings; else save it again, with its output layer.
"""

import re
from collections.abc import Iterator

from auditor.analytic.config_keys import value_at
from auditor.checkpoint.changes import with_tensors, with_values
from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.causes.other_class import holds_another_head
from auditor.diagnosis.weight_files import with_missing

CAUSE = "head-not-saved"
_KEY = "tie_word_embeddings"
# The modules of output layers, in the families that have one.
_HEAD = re.compile(
    r"(^|\.)(lm_head|embed_out|proj_out|cls|predictions|vocab_projector|decoder"
    r"|lm_loss|generator_lm_head|pred_layer|output_projection)\."
)
_INPUTS = re.compile(r"embed_tokens|embeddings|\.wte\.|shared")


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the config with tied embeddings, if only heads are missing and none is stored."""
    patterns = [kind.pattern for kind in case.missing_kinds]
    are_heads = all(_HEAD.search(one) and not _INPUTS.search(one) for one in patterns)
    declared = value_at(case.config, _KEY)
    if not patterns or not are_heads or declared is True or holds_another_head(case):
        return
    tied = with_values(case.snapshot, {_KEY: True})
    modules = {name.rpartition(".")[0] for name in case.missing}
    beside = [name for name in case.shapes if name.rpartition(".")[0] in modules]
    # A stored bias of the head is its own tensor, or an alias of a bias that is tied as well.
    for snapshot in (tied, with_tensors(tied, dict.fromkeys(beside, ()))) if beside else (tied,):
        yield Undoing(
            cause=CAUSE,
            snapshot=snapshot,
            fields=((_KEY, declared, True),),
            summary=f"{_absent(case)}, and the config does not tie it to the input embeddings",
            fix=f"set {_KEY} to true in config.json if the two share their values, or save the "
            "model again with its output layer",
            evidence=("tied, nothing is missing",),
        )


def of_classifier(case: Case) -> Iterator[Undoing]:
    """Yield the checkpoint with the missing head, if the base model is stored completely."""
    if {finding.kind for finding in case.alarms} != {"missing"} or case.target is not None:
        return
    if holds_another_head(case):
        return
    if any(part.isdecimal() for kind in case.missing_kinds for part in kind.parts):
        return
    base = {
        name.partition(".")[0] for name in case.implied_shapes.keys() - case.lacking_named.keys()
    }
    heads = {name.partition(".")[0] for name in case.missing}
    if len(base) == 1 and base.isdisjoint(heads):
        yield Undoing(
            cause=CAUSE,
            snapshot=with_missing(case),
            summary=f"{_absent(case)}: loading would make it up at random",
            fix="save the model again with its output layer, or declare in architectures the "
            "class of the base model alone",
            evidence=("all else is stored",),
        )


def _absent(case: Case) -> str:
    return f"the output layer ({', '.join(case.missing[:2])}) is not stored"
