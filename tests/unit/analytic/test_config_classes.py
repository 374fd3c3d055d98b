"""What transformers' config classes declare, held to the installed library."""

import json
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from huggingface_hub.dataclasses import type_validator
from huggingface_hub.errors import StrictDataclassFieldValidationError
from hypothesis import given
from hypothesis import strategies as st
from support.bert_configs import refusal

from auditor import data
from auditor.analytic import catalogue
from auditor.analytic.config_classes import (
    CompletedConfig,
    ConfigFault,
    FaultOrigin,
    complete,
    fault_sentence,
    library,
    of_model_type,
    one_per_cause,
)
from auditor.analytic.config_classes.declarations import of_name
from auditor.analytic.config_classes.field_types import is_of_kind, kind_in_words

FILE = Path(data.__file__).parent / "config_classes.jsonl"

# Keys that shape tensors and that the family's builder derives, not the completed config.
BUILT = {
    "full_attn_idxs",
    "generator",  # a config of any type, as question_encoder
    "layer_types",
    "mlp_only_layers",
    "output_hidden_size",
    "question_encoder",
    "time_step_rank",
}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 3)
    | st.floats()
    | st.sampled_from(["", "a", "mean"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)


@cache
def declared() -> dict[str, object]:
    """Each type that a field has, as the file writes it, and as Python has it."""
    program = import_module("rebuild_config_classes")  # imports transformers: seconds
    classes = dict(program._classes())  # noqa: SLF001 - the program's own list
    return {
        program._kind(field, {}): field.type  # noqa: SLF001 - as the file writes it
        for found in classes.values()
        for field in fields(found)
    }


@pytest.mark.oracle
def test_the_file_is_what_the_installed_library_declares():
    program = import_module("rebuild_config_classes")
    assert FILE.read_text() == program.text(program.rebuilt())


@pytest.mark.oracle
@given(value=JSON, drawn=st.data())
def test_a_value_fits_a_field_where_huggingface_hub_takes_it(value, drawn):
    written = drawn.draw(st.sampled_from(sorted(declared())))
    try:
        type_validator("key", value, declared()[written])
    except (StrictDataclassFieldValidationError, TypeError):
        taken = False
    else:
        taken = True
    assert is_of_kind(library().kinds[written], value) is taken


def test_every_type_has_a_description():
    for written, kind in library().kinds.items():
        assert kind_in_words(kind) != "nothing" or not written


def test_one_line_of_the_file_is_one_class():
    assert of_name("NoSuchConfig") is None
    assert of_model_type("no-such-type") is None
    bert = of_model_type("bert")
    assert bert is not None
    assert (bert.name, bert.fields["hidden_size"]) == ("BertConfig", ("int", 768))


@pytest.mark.oracle
def test_an_empty_config_is_completed_as_its_class_completes_it(subtests):
    for model_type in sorted(library().class_names):
        with subtests.test(model_type=model_type):
            from transformers import CONFIG_MAPPING  # noqa: PLC0415 - seconds

            theirs = CONFIG_MAPPING[model_type].from_dict({})
            theirs.allow_global_per_layer_attribute_access = True  # of layers that differ, too
            kind = of_model_type(model_type)
            assert kind is not None
            completed = complete(kind, {})
            assert not completed.faults
            for key in {*catalogue.family(model_type).defaults} & {*completed.values} - BUILT:
                value = completed.values[key]
                if not isinstance(value, CompletedConfig) and key not in kind.parts:
                    assert as_json(value) == as_json(getattr(theirs, key)), key


def as_json(value: object) -> object:
    return json.loads(json.dumps(value))


def test_every_value_of_a_wrong_type_is_named(subtests):
    for values, reasons in [
        ({"hidden_size": "64"}, ["hidden_size is the string '64', expected an integer"]),
        ({"use_cache": "yes"}, ["use_cache is the string 'yes', expected true or false"]),
        (
            {"use_cache": 1, "is_decoder": 0},
            ["is_decoder is 0, expected true or false", "use_cache is 1, expected true or false"],
        ),
    ]:
        with subtests.test(values=values, reasons=reasons):
            kind = of_model_type("bert")
            assert kind is not None
            found = sorted(fault.reason for fault in complete(kind, values).faults)
            assert len(found) == len(reasons)
            assert all(
                fault.startswith(reason) for fault, reason in zip(found, reasons, strict=True)
            )


def test_one_cause_is_one_fault_and_a_thousand_are_bounded():
    first, again, other = (
        ConfigFault("a", ("k",)),
        ConfigFault("b", ("k",)),
        ConfigFault("c", ("k", "l")),
    )
    assert one_per_cause([first, again, other]) == (first, other)
    assert len(one_per_cause(ConfigFault(str(n), (str(n),)) for n in range(1000))) == 32
    many = {f"key_{n}_token_id": n for n in range(1000)}
    assert refusal("BertModel", model_type="bert", **many, vocab_size="x").count("\n") < 32


def test_a_sentence_names_the_library_or_the_class_that_fails():
    fault = ConfigFault("pad_token_id is 9", ("pad_token_id",))
    name = library().short
    assert fault_sentence(fault, "BertModel") == f"pad_token_id is 9: {name} cannot build BertModel"
    of_class = fault._replace(origin=FaultOrigin.CLASS)
    assert fault_sentence(of_class, "BertModel") == f"{name} refuses it: pad_token_id is 9"
    of_shapes = fault._replace(origin=FaultOrigin.SHAPES)
    assert fault_sentence(of_shapes, "BertModel") == "pad_token_id is 9"


def test_the_first_line_names_the_version_of_the_library():
    head = json.loads(FILE.read_text().partition("\n")[0])
    assert head["library"] == library().name
    assert library().name.startswith(library().short)
