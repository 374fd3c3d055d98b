"""What is kept of one model and used for the next is what the next would have come to alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bert_configs import CLASSES, bert_values, config_of

from auditor.analytic import Config, Expectation, catalogue, layers, listing
from auditor.analytic.blocks import Repeat, module
from auditor.analytic.dims import dim
from auditor.analytic.families import FILES
from auditor.analytic.families.bert import BERT
from auditor.analytic.families.gpt2 import GPT2
from auditor.analytic.listing import inventory
from auditor.errors import CheckpointError, SourceError

# There is no public way to forget, and no other reason for one.
_WRITTEN = catalogue._written  # noqa: SLF001
_MODULES = layers._modules  # noqa: SLF001
_KEPT = (_WRITTEN, listing._layer_kind, listing._text, layers._tensors, _MODULES)  # noqa: SLF001

_KEYS = sorted(key for key, value in BERT.defaults.items() if type(value) is int)


def warm(values: dict[str, Any], target: str) -> Expectation | str:
    try:
        return catalogue.expect(config_of(**values), target)
    except (CheckpointError, SourceError) as error:
        return str(error)


def cold(values: dict[str, Any], target: str) -> Expectation | str:
    """The same with nothing kept from before."""
    for kept in _KEPT:
        kept.cache_clear()
    return warm(values, target)


@given(st.sampled_from(CLASSES), bert_values(), st.sampled_from(_KEYS), st.integers(1, 64))
def test_two_configs_that_differ_in_one_key_never_share(target, values, key, size):
    other = {**values, key: size}
    alone = cold(other, target)
    before = cold(values, target)
    after = warm(other, target)
    assert after == alone
    if not isinstance(after, str) and key in {symbol.key for symbol in after.legend}:
        assert (after == before) == (values.get(key) == size)


@given(st.sampled_from(CLASSES), st.sampled_from(CLASSES), bert_values())
def test_two_classes_of_one_config_never_share(first, second, values):
    alone = cold(values, second)
    cold(values, first)
    assert warm(values, second) == alone


@given(st.data())
def test_no_class_gets_the_cached_result_of_another(data: st.DataObject):
    """Of any two families, over their defaults and a few layers."""
    named = st.sampled_from(sorted(FILES)).flatmap(
        lambda each: st.tuples(st.just(each), st.sampled_from(catalogue.siblings(each)))
    )
    (first, one), (second, other) = data.draw(named), data.draw(named)
    layers = {"num_hidden_layers": data.draw(st.integers(1, 3))}
    alone = cold({"model_type": second, **layers}, other)
    cold({"model_type": first, **layers}, one)
    assert warm({"model_type": second, **layers}, other) == alone


@given(bert_values())
def test_siblings_that_share_a_config_are_those_of_configs_of_their_own(values):
    config = config_of(**values)
    for name in CLASSES:
        alone = catalogue.sibling(config_of(**values), name)
        assert catalogue.sibling(config, name) == alone


@given(st.sampled_from(CLASSES), bert_values())
def test_defaults_of_siblings_are_not_listed_for_the_target(target, values):
    config = config_of(**values)
    for name in CLASSES:
        catalogue.sibling(config, name)
    expected = catalogue.expect(config, target)
    assert expected.defaults == catalogue.expect(config_of(**values), target).defaults


def test_a_tree_of_very_many_tensors_is_not_cached():
    cold({"num_hidden_layers": 2}, "BertModel")
    few = _WRITTEN.cache_info().currsize
    warm({"num_hidden_layers": 200}, "BertModel")  # 3,200 tensors and a few
    assert few == _WRITTEN.cache_info().currsize == 1


@pytest.mark.slow
@pytest.mark.parametrize(("count", "kept"), [(10, 1), (100_000, 0)])
@pytest.mark.parametrize("body", [module(), module(a=module(), b=module())])
def test_layers_that_list_modules_and_no_tensors_are_bounded_too(body, count, kept):
    _MODULES.cache_clear()
    tree = module(layer=Repeat(dim(count), body))
    assert len(inventory(tree, {}).modules) > count
    assert _MODULES.cache_info().currsize == kept


@pytest.mark.parametrize(("family", "width"), [(BERT, 24), (GPT2, 768)])
def test_a_size_is_cached_for_its_family_alone(family, width):
    config = Config(values={"hidden_size": 24} if family is BERT else {})
    with pytest.raises(CheckpointError, match="hidden_sizes is not in the config"):
        config.dim("hidden_sizes")
    completed = config.of(family)
    assert completed.dim("hidden_size").value == completed.dim("hidden_size").value == width
    assert completed.defaulted == (() if family is BERT else ("n_embd",))
