"""head-not-saved: the output layer of an untied model is absent, and all else is there.

To do: Set `tie_word_embeddings` to true if the model shares its output layer with its input
embeddings; else save it again, with its output layer.
"""

from collections.abc import Iterator

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import value_at, with_values

CAUSE = "head-not-saved"
_KEY = "tie_word_embeddings"


def undoings(case: Case) -> Iterator[Undoing]:
    """The config with its embeddings tied, where few tensors are missing."""
    if not case.missing:
        return
    declared = value_at(case.config, _KEY)
    if declared is True:
        return
    names = ", ".join(case.missing[:2])
    yield Undoing(
        cause=CAUSE,
        snapshot=with_values(case.snapshot, {_KEY: True}),
        fields=((_KEY, declared, True),),
        summary=f"the output layer ({names}) is not stored, and the config does not tie it to the "
        "input embeddings",
        fix=f"set {_KEY} to true in config.json if the two share their values, or save the model "
        "again with its output layer",
        evidence=("tied, nothing is missing",),
    )
