"""Law 9 of generated forms, for a sample: the form equals what the installed library builds.

A release of transformers that changes a sampled pair fails here: `make catalogue` learns it again.
"""

import random

import pytest

from auditor.analytic import Config, Role, generated
from auditor.analytic.generated.expressions import Outside
from auditor.analytic.generated.form import Form
from auditor.errors import CheckpointError, SourceError
from auditor.oracle.build import build_expectation
from auditor.oracle.transformers_classes import installed_library

pytestmark = pytest.mark.oracle

PAIRS = [(kind, name) for kind, names in generated.index().types.items() for name in names]
SAMPLED = random.Random(9).sample(PAIRS, min(8, len(PAIRS)))  # noqa: S311 - a fixed sample


def drawn(form: Form, rng: random.Random):
    """A config as written: some integers of the top level, moved from their defaults."""
    config = {"model_type": form.model_type}
    for key, value in form.defaults.items():
        if type(value) is int and 1 < value < 65 and "." not in key and rng.random() < 0.4:
            config[key] = rng.choice((value + 1, value * 2, value * 3))
    return config


@pytest.mark.parametrize(("model_type", "target"), SAMPLED)
def test_a_generated_form_equals_what_the_library_builds(model_type, target):
    library = installed_library()
    rng = random.Random(target)  # noqa: S311 - a fixed sample
    form = generated.forms(model_type)[target]
    for config in ({"model_type": form.model_type}, drawn(form, rng), drawn(form, rng)):
        try:
            expected = {one.name: one for one in form.tensors(config)}
            observed = build_expectation(config, target)
        except (Outside, CheckpointError, SourceError):
            continue
        assert expected == {one.name: one for one in observed.tensors}, (
            f"{target} differs in {library and library.name} from {form.library}: make catalogue"
        )


@pytest.mark.parametrize(("model_type", "target"), SAMPLED)
def test_the_parameters_are_the_sum_over_the_required_tensors(model_type, target):
    try:
        expectation = generated.expect(Config(values={"model_type": model_type}), target)
    except SourceError:
        pytest.skip("the form does not cover the default")
    learned = [one for one in expectation.tensors if one.role is Role.PARAMETER]
    assert expectation.parameters == sum(one.elements for one in learned)
