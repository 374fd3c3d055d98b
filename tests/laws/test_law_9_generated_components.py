"""Law 9 of generated forms of diffusers: the form equals what the installed diffusers builds."""

import pytest
from support.generated_forms import configs, differing, pairs
from support.libraries import needs

from auditor.analytic import generated

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore"), needs("diffusers")]


@pytest.mark.parametrize(("place", "target"), pairs(components=True, count=4))
def test_a_generated_form_equals_what_the_library_builds(place, target):
    form = generated.forms(place)[target]
    compared = [differing("diffusers", form, config) for config in configs(form)]
    assert not any(compared), f"{target} differs from {form.library}: make catalogue"
