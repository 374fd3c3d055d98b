"""Law 1: a block's formula equals the sum over the names it lists."""

from math import prod

from hypothesis import given
from hypothesis import strategies as st
from support.bert_configs import CLASSES, bert_values, config_of
from support.block_trees import blocks, modules
from support.formulas import evaluate

from auditor.analytic import Role, catalogue
from auditor.analytic.blocks import symbols
from auditor.analytic.listing import inventory


@given(modules(blocks()))
def test_a_formula_equals_the_sum_over_the_names_it_lists(tree):
    listed = inventory(tree, {})
    learned = [tensor for tensor in listed.tensors if tensor.role is Role.PARAMETER]
    assert listed.total.value == sum(tensor.elements for tensor in learned)
    assert evaluate(str(listed.total), symbols(tree)) == listed.total.value
    assert all(tensor.elements == prod(tensor.shape) for tensor in listed.tensors)
    assert len({tensor.name for tensor in listed.tensors}) == len(listed.tensors)


@given(modules(blocks()))
def test_every_module_counts_what_is_below_its_prefix(tree):
    listed = inventory(tree, {})
    for prefix, (parameters, formula) in listed.modules.items():
        below = (
            tensor.elements
            for tensor in listed.tensors
            if tensor.role is Role.PARAMETER
            and (not prefix or tensor.name.startswith(f"{prefix}."))
        )
        assert parameters == sum(below) == evaluate(formula, symbols(tree))


@given(st.sampled_from(CLASSES), bert_values())
def test_the_formula_counts_what_the_names_enumerate(target, values):
    expected = catalogue.expect(config_of(**values), target)
    learned = sum(t.elements for t in expected.tensors if t.role is Role.PARAMETER)
    assert expected.parameters == learned == evaluate(expected.formula, expected.legend)
    for parameters, formula in expected.modules.values():
        assert parameters == evaluate(formula, expected.legend)
