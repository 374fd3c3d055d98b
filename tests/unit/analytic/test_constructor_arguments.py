"""Arguments of constructors: those of transformers' own classes, and what they add."""

import ast
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from msgspec.structs import replace
from support.bert_configs import config_of

from auditor.analytic import catalogue
from auditor.analytic.catalogue import OPTIONS

TRANSFORMERS = find_spec("transformers")
TAKING = {
    "add_pooling_layer": {
        *("AlbertModel", "BertModel", "CamembertModel", "DeiTModel", "EsmModel", "GteModel"),
        *("MPNetModel", "RobertaModel", "SwinModel", "ViTModel", "XLMRobertaModel"),
    },
    "use_mask_token": {"DeiTModel", "SwinModel", "ViTModel"},
}
ADDED = {"add_pooling_layer": "pooler.", "use_mask_token": "embeddings.mask_token"}


@cache
def arguments_of(modeling: Path) -> dict[str, set[str]]:
    """Class -> the names of its constructor's arguments, by the source."""
    found = {}
    source = modeling.read_text()
    for node in ast.parse(source).body if any(argument in source for argument in OPTIONS) else ():
        for member in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                arguments = (*member.args.args, *member.args.kwonlyargs)
                found[node.name] = {one.arg for one in arguments}
    return found


@pytest.mark.skipif(TRANSFORMERS is None, reason="transformers is not installed")
def test_the_classes_that_take_it_are_those_of_transformers(subtests):
    for argument in OPTIONS:
        with subtests.test(argument=argument):
            models = Path(TRANSFORMERS.origin).parent / "models"
            folders = {name.replace("-", "_") for name in catalogue.model_types()}
            files = [file for each in folders for file in (models / each).glob("modeling_*.py")]
            constructors = {
                name: args for file in files for name, args in arguments_of(file).items()
            }
            known = set(catalogue.class_names())
            assert {name for name in known if argument in constructors.get(name, ())} == TAKING[
                argument
            ]
            assert {name for name in known if catalogue.takes(name, argument)} == TAKING[argument]


def names(model_type, **arguments):
    config = config_of(model_type=model_type, vocab_size=33)
    target = catalogue.base_class(model_type)
    found = catalogue.expect(config, target)
    changed = catalogue.expect(replace(config, arguments=arguments), target)
    return found, changed


def test_it_adds_or_leaves_out_the_tensors_that_are_named_after_it(subtests):
    for argument, target in [(key, one) for key, some in TAKING.items() for one in sorted(some)]:
        with subtests.test(argument=argument, target=target):
            model_type = catalogue.types(target)[0]
            is_left_out = (
                argument == "use_mask_token" or target == "GteModel"
            )  # unless it is requested
            before, after = names(model_type, **{argument: is_left_out})
            both = {one.name for one in before.tensors}, {one.name for one in after.tensors}
            differing = both[0] ^ both[1]
            if (target, argument) == ("SwinModel", "add_pooling_layer"):
                assert differing == set()
            else:
                assert differing
                assert all(name.startswith(ADDED[argument]) for name in differing)
                assert before.parameters != after.parameters


def test_what_a_class_does_not_take_leaves_it_as_it_is():
    before, after = names("gpt2", add_pooling_layer=False)
    assert before.tensors == after.tensors
    assert not catalogue.takes("GPT2Model", "add_pooling_layer")
