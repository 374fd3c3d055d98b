"""Law 9 for diffusers: the closed forms list the tensors that diffusers itself builds."""

import inspect
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.diffusers_configs import NEEDED, PUBLISHED, configs
from support.libraries import needs

from auditor.analytic import Config
from auditor.analytic.diffusion import CLASSES, expect_diffusers
from auditor.audit.expected import OLDER_CLASSES
from auditor.errors import CheckpointError, SourceError
from auditor.oracle.inventory import inventory

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore"), needs("diffusers")]


def assert_equal(target: str, config: dict) -> None:
    found = expect_diffusers(Config(values=config), target)
    built = inventory("diffusers", target, config)
    assert {one.name: one for one in found.tensors} == {one.name: one for one in built.tensors}
    assert found.parameters == built.parameters
    assert (found.loading.legacy, found.loading.silent) == (
        built.loading.legacy,
        built.loading.silent,
    )


@pytest.mark.parametrize("target", CLASSES)
def test_a_default_config_is_what_diffusers_builds(target):
    assert_equal(target, NEEDED.get(target, {}))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_config_is_what_diffusers_builds(name):
    assert_equal(*PUBLISHED[name])


@pytest.mark.parametrize("target", CLASSES)
@settings(max_examples=20)
@given(data=st.data())
def test_a_random_config_is_what_diffusers_builds(target, data):
    config = data.draw(configs(target))
    try:
        built = inventory("diffusers", target, config)
    except CheckpointError:  # diffusers refuses it
        return
    try:
        found = expect_diffusers(Config(values=config), target)
    except SourceError:  # outside of what the form covers
        return
    assert {one.name: one for one in found.tensors} == {one.name: one for one in built.tensors}
    assert found.parameters == built.parameters


@pytest.mark.parametrize("target", CLASSES)
def test_a_form_has_the_keys_and_defaults_of_diffusers(target):
    import diffusers  # noqa: PLC0415 - seconds

    parameters = inspect.signature(getattr(diffusers, target)).parameters
    defaults = {key: parameter.default for key, parameter in parameters.items()}
    assert defaults == CLASSES[target].family.defaults


def test_the_tool_writes_what_pipelines_require():
    import rebuild_pipelines  # noqa: PLC0415 - a tool

    assert json.loads(rebuild_pipelines.PLACE.read_text()) == rebuild_pipelines.pipelines()


def test_older_configs_are_of_the_classes_as_which_diffusers_loads_them():
    from diffusers.models import model_loading_utils as judge  # noqa: PLC0415 - seconds

    assert judge._CLASS_REMAPPING_DICT == {"Transformer2DModel": OLDER_CLASSES}  # noqa: SLF001
