"""The configs on which a generated form is compared with its library."""

import random
from collections.abc import Iterator
from typing import Any

from support.examples import one_in

from auditor.analytic import generated, listing
from auditor.analytic.generated.expressions import Outside
from auditor.analytic.generated.form import Form
from auditor.analytic.generated.tree import form_tree
from auditor.errors import CheckpointError, SourceError
from auditor.oracle.inventory import inventory

COMPONENT = "diffusers."  # how the index begins the place of a class of diffusers
_USUAL = ("hidden_size", "num_attention_heads", "vocab_size", "num_layers", "d_model", "head_dim")


def pairs(*, components: bool, count: int) -> list[tuple[str, str]]:
    """Return (place, class) of about `count` forms, or of all in a thorough run."""
    found = [
        (place, name)
        for place, names in generated.index().types.items()
        for name in names
        if place.startswith(COMPONENT) is components
    ]
    random.Random(9).shuffle(found)  # noqa: S311 - the same sample each time
    return one_in(max(1, len(found) // count), found)


def configs(form: Form) -> Iterator[dict[str, Any]]:
    """Yield the default config, one with usual keys of others, and two with integers moved."""
    default = {"model_type": form.model_type} if form.model_type else {}
    yield default
    yield default | {key: 24 for key in _USUAL if key not in form.defaults}
    rng = random.Random(form.target)  # noqa: S311 - the same configs each time
    numbers = [key for key, value in form.defaults.items() if type(value) is int]
    for _ in range(2):
        moved = [key for key in numbers if 1 < form.defaults[key] < 65 and "." not in key]
        changed = {
            key: rng.choice((form.defaults[key] + 1, form.defaults[key] * 2))
            for key in moved
            if rng.random() < 0.4
        }
        yield default | changed


def differing(library: str, form: Form, config: dict[str, Any]) -> set[str] | None:
    """Return the names that differ; None if the form or the library refuses the config."""
    try:
        expected = {one.name: one for one in listing.inventory(form_tree(form, config), {}).tensors}
        observed = {one.name: one for one in inventory(library, form.target, config).tensors}
    except (Outside, CheckpointError, SourceError):
        return None
    names = {*expected, *observed}
    return {name for name in names if expected.get(name) != observed.get(name)}
