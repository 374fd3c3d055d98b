"""Law 9 for every class of the catalogue: the closed form equals transformers itself.

Each family declares in `strategies/` which configs to draw, and what a config has to say `LEAST`
where its class cannot be built from its defaults. A class that takes fewer has a strategy of its
own, under its name. The usual run draws few for each class, `make oracle` 20.
"""

from collections import defaultdict
from collections.abc import Mapping
from importlib import import_module

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from support.bert_configs import config_of
from support.examples import IS_THOROUGH, ORACLE_EXAMPLES
from support.formulas import evaluate
from support.strategies.common import four_layers

from auditor.analytic import Expectation, Role, catalogue
from auditor.analytic.conversions import class_memory as memory_of
from auditor.analytic.families import FILES
from auditor.oracle import build

pytestmark = pytest.mark.oracle

# Models of papers alone, which transformers does not have: a test of their own holds them.
PAPERS = frozenset({"transformer-2017"})
MODEL_TYPES = [each for each in catalogue.model_types() if each not in PAPERS]
# The classes of a type differ in their heads: the usual run builds every third.
STEP = 1 if IS_THOROUGH or ORACLE_EXAMPLES > 2 else 3
# It builds half of the types with all of their layers, and the others of random configs.
DEEP, DRAWN = (MODEL_TYPES, MODEL_TYPES) if STEP == 1 else (MODEL_TYPES[::2], MODEL_TYPES[1::2])


def strategies(model_type: str):
    return import_module(f"support.strategies.{FILES[model_type]}")


def tensors(expectation: Expectation, *, optional: bool = False):
    """By name: shape, elements, role and tie of what a checkpoint needs, or of what it may have."""
    return {name: rest for name, *rest in expectation.tensors if rest[2].optional is optional}


def assert_closed_form_equals_oracle(model_type, target, values):
    observed = build.build_expectation(values, target)
    expected = catalogue.expect(config_of(**values, model_type=model_type), target)
    assert not expected.faults
    assert tensors(expected) == tensors(observed)
    assert tensors(observed, optional=True).items() <= tensors(expected, optional=True).items()
    assert expected.parameters == observed.parameters
    assert evaluate(expected.formula, expected.legend) == observed.parameters
    assert (expected.model_type, expected.prefix) == (observed.model_type, observed.prefix)
    counts = {prefix: parameters for prefix, (parameters, _) in expected.modules.items()}
    assert counts | {k: parameters for k, (parameters, _) in observed.modules.items()} == counts
    names = [tensor.name for tensor in expected.tensors]
    assert len(set(names)) == len(names)
    assert_loaded_alike(expected, observed)
    if expected.active is not None:
        assert expected.active.parameters <= expected.parameters
        assert evaluate(expected.active.formula, expected.legend) == expected.active.parameters


def assert_loaded_alike(expected: Expectation, observed: Expectation) -> None:
    """The same rules, and the same names and shapes in memory."""
    ours, theirs = expected.loading, observed.loading
    assert (ours.renames, ours.legacy, ours.converters) == (
        theirs.renames,
        theirs.legacy,
        theirs.converters,
    )
    for patterns in ("silent", "buffers", "unmissed"):
        assert set(getattr(ours, patterns)) == set(getattr(theirs, patterns)), patterns
    assert theirs.not_renamed == frozenset()
    assert ours.reports
    assert theirs.reports
    mine, memory = memory_of(expected), memory_of(observed)
    assert dict(mine.ties) == dict(memory.ties)
    assert mine.shapes.keys() == memory.shapes.keys()
    tied = dict(memory.ties)  # of two sizes, as Marian's can be, each has its own there
    assert all(
        shape == memory.shapes[name] for name, shape in mine.shapes.items() if name not in tied
    )


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_closed_form_equals_the_oracle_over_the_defaults(model_type, record_property):
    """The first class of a type in DEEP has all layers, every other class four."""
    least = getattr(strategies(model_type), "LEAST", {})
    targets = catalogue.siblings(model_type)[::STEP]
    for target in targets:
        values = least.get(model_type, {})
        if model_type not in least and (model_type not in DEEP or target != targets[0]):
            values = four_layers(model_type)
        assert_closed_form_equals_oracle(model_type, target, values)
    record_property("oracle_defaults", len(targets))


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_an_unchecked_config_is_completed_with_the_same_defaults(model_type):
    """A config of the repository's own code, or of GGUF, says as little as any other."""
    least = getattr(strategies(model_type), "LEAST", {})
    config = config_of(**least.get(model_type, {}), model_type=model_type)
    for target in catalogue.siblings(model_type)[::STEP]:
        free = catalogue.expect(replace(config, checked=False), target)
        assert free.tensors == catalogue.expect(config, target).tensors
        assert free.faults == ()


@pytest.mark.parametrize("model_type", DRAWN)
def test_the_closed_form_equals_the_oracle_over_random_configs(model_type, record_property):
    drawn, values = 0, strategies(model_type).VALUES
    for target in catalogue.siblings(model_type)[::STEP]:

        @settings(
            max_examples=ORACLE_EXAMPLES, suppress_health_check=list(HealthCheck), print_blob=False
        )
        @given(values.get(target, values[model_type]), st.just(target))
        def holds(values, target):
            nonlocal drawn
            assert_closed_form_equals_oracle(model_type, target, values)
            drawn += 1

        holds()
    record_property("oracle_examples", drawn)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_every_class_of_the_auto_mappings_has_a_closed_form_or_a_reason(model_type):
    left_out = getattr(strategies(model_type), "LEFT_OUT", {})
    left_out = left_out.get(model_type, left_out)
    theirs, ours = auto_classes()[model_type], set(catalogue.siblings(model_type))
    assert theirs <= ours | set(left_out)
    assert set(left_out) <= theirs - ours


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_the_defaults_are_those_of_the_config_class(model_type):
    from transformers import CONFIG_MAPPING  # noqa: PLC0415 - seconds, for the oracle's tests alone

    config_class = CONFIG_MAPPING[model_type]
    family = catalogue.family(model_type)
    assert dict(family.synonyms) == config_class.attribute_map
    theirs = config_class()
    theirs.allow_global_per_layer_attribute_access = (
        True  # where layers differ, what is said of all
    )
    for key, value in family.defaults.items():
        if value is not None and key in theirs.to_dict():  # null: the class works the value out
            own = theirs.to_dict()[key] if isinstance(value, Mapping) else getattr(theirs, key)
            if isinstance(value, Mapping):
                own = {inner: own[inner] for inner in value}
            listed = list(own) if isinstance(own, tuple) else own
            assert listed == (list(value) if isinstance(value, tuple) else value)


@given(st.sampled_from(["LlamaForCausalLM", "T5Model"]))
def test_legacy_and_extra_tensors_are_optional(target):
    for tensor in catalogue.expect(config_of(), target).tensors:
        assert tensor.role.optional == (tensor.role in {Role.LEGACY, Role.EXTRA})


def auto_classes() -> dict[str, set[str]]:
    """Model type -> the classes that any MODEL_*_MAPPING_NAMES of transformers lists for it."""
    from transformers.models.auto import modeling_auto  # noqa: PLC0415 - see above

    listed: dict[str, set[str]] = defaultdict(set)
    for name, mapping in vars(modeling_auto).items():
        if name.startswith("MODEL_") and name.endswith("MAPPING_NAMES"):
            for model_type, classes in mapping.items():
                listed[model_type].update([classes] if isinstance(classes, str) else classes)
    return listed
