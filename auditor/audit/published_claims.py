"""The published sizes of a model: in its name, on the Hub, in its model card."""

from functools import partial

from auditor.analytic import Expectation, Role
from auditor.checkpoint.snapshot import Snapshot, Source
from auditor.claims.published import (
    ModelCounts,
    OtherCounts,
    count_in_card,
    count_in_name,
    count_of_hub,
)
from auditor.claims.verdict import PublishedCount
from auditor.report import Observed
from auditor.tensors import Depth

_NAMED = frozenset({Source.HUB, Source.CACHE, Source.BUNDLED})
_EMBEDDING = ("embed", "wte", "wpe", "lm_head", "embed_out", "shared")
_CARD = "cardData."
_LEVELS = 2  # parts of a module's name, as in model.language_model
_LANGUAGE = 0.3  # least share of the model's parameters in a module that the name may mean


def published_counts(
    snapshot: Snapshot, expectation: Expectation, observed: Observed, *, is_complete: bool
) -> tuple[PublishedCount, ...]:
    """Judge the published sizes; `is_complete` is true if all weight files were read.

    A model's name is judged only if it comes from the Hub: users name folders as they like.
    """
    has_published_name = snapshot.source in _NAMED or snapshot.commit is not None
    if not (has_published_name or snapshot.published):
        return ()
    counts = _counts(expectation, observed, is_complete=is_complete)
    judged_counts = [count_in_name(snapshot.model, counts)] if has_published_name else []
    for figure in snapshot.published:
        if figure.name.startswith(_CARD):
            judged_counts.append(count_in_card(figure.name, figure.text, counts))
        elif not _other_sets(snapshot):
            judged_counts.append(count_of_hub(figure.name, figure.text, counts))
    return tuple(filter(None, judged_counts))


def _counts(expectation: Expectation, observed: Observed, *, is_complete: bool) -> ModelCounts:
    stored = observed.parameters if is_complete else None
    parameters = expectation.parameters if stored is None else stored
    return ModelCounts(
        parameters=parameters,
        expected=expectation.parameters,
        elements=observed.elements if is_complete else None,
        packed=observed.layout is not None,
        others=partial(_other_counts, expectation, parameters),
    )


def _other_counts(expectation: Expectation, parameters: int) -> OtherCounts:
    """Count the model without its embeddings and with ties counted twice; count large modules."""
    tied = embeddings = 0
    experts = expectation.active is not None
    for tensor in expectation.tensors:
        tied += tensor.elements if tensor.role is Role.TIED else 0
        if tensor.role is Role.PARAMETER and any(sign in tensor.name for sign in _EMBEDDING):
            embeddings += tensor.elements
        experts = experts or ".experts." in tensor.name
    modules = (
        formula.parameters
        for formula in expectation.modules_to(Depth(_LEVELS)).values()
        if formula.parameters >= _LANGUAGE * parameters
    )
    return OtherCounts((parameters - embeddings, parameters + tied, *modules), experts)


def _other_sets(snapshot: Snapshot) -> bool:
    """Return whether the Hub may have counted other safetensors files than those that were read."""
    read_names = {head.name for head in snapshot.headers}
    listed = (file.name for file in snapshot.files if file.name.endswith(".safetensors"))
    return any(name not in read_names for name in listed) or not any(
        name.endswith(".safetensors") for name in read_names
    )
