"""Formulas of a class that only the oracle knows: found by changing one key at a time."""

from hypothesis import given
from hypothesis import strategies as st

from auditor.analytic.dims import dim
from auditor.analytic.lookup import follow
from auditor.diagnosis.solving.probing import probed_formulas, tree_of_shapes

WORD = st.sampled_from(["a", "b", "0", "1", "2"])
SHAPE = st.lists(st.integers(1, 40), max_size=3).map(tuple)
NUMBERS = {"width": 8, "rank": 8, "heads": 4, "groups": 2, "head_dim": 6}


def layers_of(config, length):
    """Return the tensors of a model whose layers have a matrix of this length."""
    return {f"layers.{at}.up.weight": (length(config), 8) for at in range(config["num_layers"])}


def formula_of(length):
    """Return the formula of that length, as found by probing, and its tree."""
    config = {**NUMBERS, "num_layers": 9}

    def implied(values):
        return layers_of({**config, **values}, length)

    formulas = probed_formulas(config, implied)
    return formulas, tree_of_shapes(implied({}), config, formulas).tree


@given(st.dictionaries(st.tuples(st.just("m"), WORD, WORD, st.just("w")), SHAPE, min_size=1))
def test_the_tree_has_each_tensor_in_its_shape(shapes):
    by_name = {".".join(parts): shape for parts, shape in shapes.items()}
    tree = tree_of_shapes(by_name, {"hidden_size": 8, "num_hidden_layers": 2}, {}).tree
    for name, shape in by_name.items():
        assert tuple(dim(size).value for size in follow(tree, name).shape) == shape


def test_a_length_is_a_formula_of_the_keys_with_which_it_changes(subtests):
    for length, keys in [
        (lambda c: c["width"], {"width"}),
        (lambda c: c["rank"], {"rank"}),
        (lambda c: 3 * c["rank"] + 5, {"rank"}),
        (lambda c: c["heads"] * c["head_dim"], {"heads", "head_dim"}),
        (lambda c: (c["heads"] + 2 * c["groups"]) * c["head_dim"], {"heads", "groups", "head_dim"}),
        (lambda c: c["groups"] * c["width"] // c["heads"], {"groups", "width", "heads"}),
        (lambda c: c["width"] + c["rank"] + 1, {"width", "rank"}),
        (lambda _: 8, set()),
    ]:
        with subtests.test(length=length, keys=keys):
            formulas, tree = formula_of(length)
            path = follow(tree, "layers.8.up.weight")
            assert {symbol.key for symbol in dim(path.shape[0]).symbols} == keys
            assert dim(path.shape[0]).value == length(NUMBERS)
            assert [dim(one.modules).value for one in path.lists] == [9]
            assert {symbol.key for one in path.lists for symbol in one.modules.symbols} == {
                "num_layers"
            }
            if keys:
                other = {**NUMBERS, "width": 24, "rank": 5, "heads": 12, "groups": 3, "head_dim": 7}
                expected = formulas["layers.0.up.weight", 0].at(other, {})
                assert expected.value == length(other)


def test_a_config_without_tensors_has_no_formulas():
    assert probed_formulas({"width": 8}, lambda _: None) == {}


def test_a_formula_of_a_key_that_the_config_lacks_has_no_value():
    formulas, _ = formula_of(lambda c: c["heads"] * c["head_dim"])
    formula = formulas["layers.0.up.weight", 0]
    assert formula.at({"heads": 2}, {}) is None
    assert formula.at({"heads": 2, "head_dim": None}, {"head_dim": 5}).value == 10


def test_items_of_a_list_are_the_lengths_of_their_stage():
    config = {"depths": [2, 12], "widths": [6, 8]}

    def implied(values):
        now = {**config, **values}
        return {
            f"stages.{stage}.blocks.{at}.weight": (3 * width,)
            for stage, (depth, width) in enumerate(zip(now["depths"], now["widths"], strict=True))
            for at in range(depth)
        }

    tree = tree_of_shapes(implied({}), config, probed_formulas(config, implied)).tree
    for stage, block in ((0, 1), (1, 2), (1, 11)):
        path = follow(tree, f"stages.{stage}.blocks.{block}.weight")
        assert {symbol.key for symbol in dim(path.shape[0]).symbols} == {f"widths[{stage}]"}
        modules = dim(path.lists[-1].modules)
        assert {symbol.key for symbol in modules.symbols} == {f"depths[{stage}]"}


def test_an_omitted_key_that_repeats_others_is_left_out():
    config = {"model_type": "llama", "hidden_size": 32, "num_attention_heads": 4}

    def implied(values):
        now = {**config, **values}
        width = now.get("head_dim") or now["hidden_size"] // now["num_attention_heads"]
        return {"q.weight": (now["num_attention_heads"] * width, now["hidden_size"])}

    formulas = probed_formulas(config, implied)
    assert formulas["q.weight", 0].factors == ("hidden_size",)
