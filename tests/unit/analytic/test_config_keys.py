"""Keys of a config: synonyms, lists, nested configs, and values of a wrong kind."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.bert_configs import config_of

from auditor.analytic import Config, Symbol, catalogue
from auditor.analytic.config_classes import of_model_type
from auditor.analytic.dims import dim
from auditor.analytic.family import Family
from auditor.errors import CheckpointError, SourceError

NAMED = Family(
    model_type="gpt2",  # whose config class calls hidden_size n_embd
    prefix="",
    base="Named",
    own={
        "n_embd": 8,
        "n_inner": None,
        "widths": (4, 6),
        "text_config": {"n_embd": 3},
        "image_size": 5,
        "act": "relu",
        "ratio": 2,
    },
    letters={"n_inner": "F"},
)


def named(**values: Any) -> Config:
    return config_of(**values).of(NAMED)


@pytest.mark.oracle
@given(st.dictionaries(st.sampled_from(["hidden_size", "n_embd"]), st.integers(1, 9)))
def test_a_synonym_is_read_as_transformers_reads_it(values):
    from transformers import GPT2Config  # noqa: PLC0415 - seconds, which only this test pays

    family = catalogue.family("gpt2")
    for key in ("hidden_size", "n_embd"):
        assert config_of(**values).of(family).integer(key) == GPT2Config(**values).n_embd


@pytest.mark.oracle
@given(st.dictionaries(st.sampled_from(["block_ff_dim", "intermediate_size"]), st.integers(1, 9)))
def test_an_older_name_of_a_key_is_read_as_transformers_reads_it(values):
    from transformers import Lfm2Config  # noqa: PLC0415 - seconds, which only this test pays

    family = catalogue.family("lfm2")
    width = config_of(**values).of(family).integer("intermediate_size")
    assert width == Lfm2Config(**values).intermediate_size


def test_a_synonym_is_the_same_symbol_under_the_classs_own_key(subtests):
    for values, size, default in [
        ({}, 8, True),
        ({"n_embd": 4}, 4, False),
        ({"hidden_size": 5, "n_embd": 4}, 5, False),
    ]:
        for asked in ["hidden_size", "n_embd"]:
            with subtests.test(asked=asked, values=values, size=size, default=default):
                (symbol,) = named(**values).dim(asked).symbols
                assert symbol == Symbol(letter="D", key="n_embd", value=size, default=default)


def test_an_error_names_the_key_as_the_config_spells_it():
    with pytest.raises(CheckpointError, match=r"^hidden_size is null, expected an integer"):
        named(hidden_size=None).dim("n_embd")
    with pytest.raises(
        CheckpointError, match=r"^text_config\.hidden_size is null, expected an integer"
    ):
        named(text_config={"hidden_size": None}).nested("text_config", NAMED).dim("n_embd")


def test_a_null_is_no_size_and_a_zero_is_one():
    assert named().optional("n_inner") is None
    assert named(n_inner=None).optional("n_inner") is None
    assert named().defaulted == ()
    assert str(named(n_inner=0).optional("n_inner") or "never") == "F"
    with pytest.raises(CheckpointError, match=r"^n_inner is null, expected an integer$"):
        named().dim("n_inner")


def test_zero_or_less_may_mean_that_a_size_is_absent(subtests):
    for value in [-1, 0]:
        with subtests.test(value=value):
            assert named(n_inner=value).positive("n_inner") is None
            assert str(named(n_inner=1).positive("n_inner")) == "F"
            with pytest.raises(CheckpointError, match=r"^n_inner is null, expected an integer$"):
                named().positive("n_inner")


def test_strings_may_stand_in_one_with_a_separator(subtests):
    for value in ["p2c|c2p", "p2c | c2p ", ["p2c", "c2p"]]:
        with subtests.test(value=value):
            assert named(kinds=value).texts("kinds", separator="|") == ("p2c", "c2p")
            with pytest.raises(
                CheckpointError, match=r"^kinds is the string 'p2c\|c2p', expected a list"
            ):
                named(kinds="p2c|c2p").texts("kinds")


def test_the_sizes_of_a_list_are_letters_of_their_own():
    first, second = named(widths=[7, 9]).dims("widths")
    assert (str(first * second), (first * second).value) == ("widths[0]*widths[1]", 63)
    assert named().integers("widths") == (4, 6)
    assert named(widths=["a"]).texts("widths") == ("a",)


def test_a_list_whose_items_count_from_the_end_may_be_negative():
    assert named(widths=[-2, 3]).integers("widths") == (-2, 3)


@given(st.floats(0, 9) | st.sampled_from([0.29, 2.6667, 1.1]), st.integers(0, 2000))
def test_a_scaled_size_is_pythons_own_product_rounded_down(ratio, width):
    size = named(ratio=ratio, hidden_size=width + 1).scaled("ratio", dim(width))
    assert size.value == int(ratio * width)


def test_a_scaled_size_is_written_with_its_ratio(subtests):
    for ratio, formula in [
        (4.0, "4*D"),
        (4, "4*D"),
        (0.5, "D/2"),
        (2.6667, "floor(26667*D/10000)"),
    ]:
        with subtests.test(ratio=ratio, formula=formula):
            config = named(ratio=ratio, hidden_size=64)
            assert str(config.scaled("ratio", config.dim("hidden_size"))) == formula


def test_an_image_has_one_size_or_two(subtests):
    for value, pair in [(6, ("image_size",) * 2), ([6, 8], ("image_size[0]", "image_size[1]"))]:
        with subtests.test(value=value, pair=pair):
            assert tuple(map(str, named(image_size=value).pair("image_size"))) == pair


def test_a_value_of_another_kind_is_named(subtests):
    for read, value, message in [
        (lambda c: c.dims("widths"), 7, r"^widths is 7, expected a list$"),
        (lambda c: c.dims("widths"), [1, "2"], r"^widths is the string '2', expected an integer$"),
        (lambda c: c.texts("widths"), [1], r"^an item of widths is 1, expected a string$"),
        (lambda c: c.texts("widths", length=3), [1], r"^widths has 1 items, expected 3$"),
        (lambda c: c.pair("widths"), [1], r"^widths is a list, expected one size or two$"),
        (lambda c: c.text("widths"), 1, r"^widths is 1, expected a string$"),
        (lambda c: c.real("widths"), True, r"^widths is true, expected a number$"),
        (lambda c: c.scaled("widths", dim(2)), float("nan"), r"^widths is nan, expected a number"),
        (lambda c: c.nested("widths"), [], r"^widths is a list, expected an object$"),
    ]:
        with (
            subtests.test(read=read, value=value, message=message),
            pytest.raises(CheckpointError, match=message),
        ):
            read(named(widths=value))


def test_strings_and_numbers_are_read_as_they_are():
    assert (named().text("act"), named(act="gelu").text("act")) == ("relu", "gelu")
    assert (named().real("ratio"), named(ratio=0.5).real("ratio")) == (2.0, 0.5)


def test_a_nested_config_has_letters_and_keys_of_its_own(subtests):
    for values, size, default in [
        ({}, 3, True),  # the outer class's own default for the whole object
        ({"text_config": None}, 3, True),
        ({"text_config": {}}, 8, True),  # the inner class's default for the key
        ({"text_config": {"hidden_size": 6}}, 6, False),
    ]:
        with subtests.test(values=values, size=size, default=default):
            inner = named(**values).nested("text_config", NAMED)
            (symbol,) = inner.dim("hidden_size").symbols
            assert symbol == Symbol(
                letter="D_text", key="text_config.n_embd", value=size, default=default
            )


def test_an_older_name_of_a_nested_config_gives_its_letters_the_same_subscript():
    inner = named(text_config_dict={"n_embd": 6}).nested("text_config_dict", NAMED)
    (symbol,) = inner.dim("n_embd").symbols
    assert (symbol.letter, symbol.key) == ("D_text", "text_config_dict.n_embd")


def test_a_config_states_a_key_that_it_has_and_not_as_null(subtests):
    for values, states in [
        ({}, False),
        ({"hidden_size": None}, False),
        ({"hidden_size": 8}, True),
        ({"n_embd": 8}, True),
    ]:
        with subtests.test(values=values, states=states):
            config = named(**values)
            assert config.states("n_embd") is config.states("hidden_size") is states
            assert config.defaulted == ()


def test_one_integer_is_as_long_as_a_list_of_one(subtests):
    for value, length in [(-2, 1), (3, 1), ([-2], 1), ([1, -2, 3], 3), ([], 0)]:
        with subtests.test(value=value, length=length):
            assert named(widths=value).length("widths") == length
            with pytest.raises(
                CheckpointError, match=r"^widths is the string '3', expected a list$"
            ):
                named(widths="3").length("widths")


def test_defaults_within_a_nested_config_are_recorded_with_their_path():
    config = named(text_config={})
    config.nested("text_config", NAMED).dim("n_embd")
    config.dim("n_embd")
    assert config.defaulted == ("n_embd", "text_config.n_embd")


def test_the_decoder_of_a_pair_decides_whether_its_head_is_tied():
    pair = {"tie_word_embeddings": False, "decoder": {"tie_word_embeddings": True}}
    assert not config_of(**pair).denies_ties
    assert config_of(decoder={"tie_word_embeddings": False}).denies_ties
    assert config_of(tie_word_embeddings=False).denies_ties


# --- configs with odd values ----------------------------------------------------------------------


MODEL_TYPES = catalogue.model_types()
UNDECLARED = (
    "depths",
    "dtype",
    "id2label",
    "layer_types",
    "num_labels",
    "out_features",
    "out_indices",
    "pad_token_id",
    "per_layer_config",
    "rope_scaling",
    "text_config_dict",
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-2, 9)
    | st.floats()
    | st.sampled_from([2**40, 10**30, "", "1", "auto", "gated-", "full_attention", "stage1"])
)
ODD = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["0", "a", "hidden_size", "model_type"]), inner)
    ),
    max_leaves=4,
)


@given(st.data())
def test_an_odd_config_has_an_expectation_or_a_reason(drawn):
    model_type = drawn.draw(st.sampled_from(MODEL_TYPES))
    target = drawn.draw(st.sampled_from(catalogue.siblings(model_type)))
    kind, read = of_model_type(model_type), {*catalogue.family(model_type).defaults}
    declared = {*kind.fields, *kind.parts, *kind.attribute_map} if kind else set()
    keys = st.sampled_from(sorted({*read, *declared, *UNDECLARED}))
    values = drawn.draw(st.dictionaries(keys, ODD, min_size=1, max_size=3))
    with suppress(CheckpointError, SourceError):  # the reason
        expected = catalogue.expect(config_of(**values, model_type=model_type), target)
        assert all(size >= 0 for tensor in expected.tensors for size in tensor.shape)


def test_differing_layers_of_a_nested_config_have_no_closed_form():
    uneven = {"per_layer_config": {"0": {"hidden_size": 4}}}
    for target, key in (("SamModel", "prompt_encoder_config"), ("BlipModel", "text_config")):
        with pytest.raises(
            SourceError, match=rf"^no closed form is known for {key}\.per_layer_con"
        ):
            catalogue.expect(config_of(**{key: uneven}), target)
