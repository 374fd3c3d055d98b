"""Law 9 of generated forms: the form equals what the installed transformers builds.

A usual run compares a few pairs, a nightly one all. A release that changes a compared pair fails
here: `make catalogue` learns it again.
"""

import pytest
from support.generated_forms import configs, differing, pairs

from auditor.analytic import Config, Role, generated
from auditor.errors import SourceError
from auditor.oracle.transformers_classes import installed_library

pytestmark = pytest.mark.oracle

SAMPLED = pairs(components=False, count=8)


@pytest.mark.parametrize(("model_type", "target"), SAMPLED)
def test_a_generated_form_equals_what_the_library_builds(model_type, target):
    library, form = installed_library(), generated.forms(model_type)[target]
    compared = [differing("transformers", form, config) for config in configs(form)]
    assert not any(compared), (
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
