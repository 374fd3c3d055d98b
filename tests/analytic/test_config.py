import re
from typing import Any

import pytest
from bert_configs import config_of, refusal
from hypothesis import given, settings
from hypothesis import strategies as st

from auditor.analytic import Config, Symbol, catalogue, read_config
from auditor.analytic.dims import dim
from auditor.analytic.dtypes import DTYPES
from auditor.analytic.families.bert import BERT
from auditor.analytic.family import Family
from auditor.errors import CheckpointError

SIZES = sorted(key for key, value in BERT.defaults.items() if type(value) is int)
FLAGS = sorted(key for key, value in BERT.defaults.items() if type(value) is bool)
SCALARS = st.none() | st.booleans() | st.floats() | st.text(max_size=3) | st.integers(-3, 3)


def label_values() -> st.SearchStrategy[dict[str, Any]]:
    keys = st.integers(-2, 12).map(str) | st.sampled_from(["00", "x", "0.5", " 1 "])
    return st.fixed_dictionaries(
        {},
        optional={
            "num_labels": st.none() | st.integers(0, 9) | st.sampled_from(["3", 1.5]),
            "id2label": st.none()
            | st.dictionaries(keys, st.just("label"), max_size=4)
            | st.just([]),
        },
    )


def bert(**values: Any) -> Config:
    return config_of(**values).of(BERT)


@pytest.mark.oracle
@settings(deadline=None)  # the first example imports torch
@given(label_values())
def test_labels_are_counted_as_transformers_counts_them(values):
    from transformers import BertConfig  # noqa: PLC0415 - seconds, which only this test pays

    try:
        expected = BertConfig(**values).num_labels
    except (TypeError, ValueError, AttributeError):
        with pytest.raises(CheckpointError, match=r"num_labels|id2label"):
            _ = bert(**values).num_labels
    else:
        assert bert(**values).num_labels.value == expected


@pytest.mark.oracle
@settings(deadline=None)  # the first example imports torch
@given(st.sampled_from(SIZES + FLAGS), SCALARS)
def test_a_value_of_a_type_that_transformers_refuses_is_refused(key, value):
    from huggingface_hub.errors import (  # noqa: PLC0415 - for this test alone
        StrictDataclassFieldValidationError,
    )
    from transformers import BertConfig  # noqa: PLC0415 - seconds, which only this test pays

    read = Config.flag if key in FLAGS else Config.integer
    try:
        BertConfig(**{key: value})
    except StrictDataclassFieldValidationError:
        with pytest.raises(CheckpointError, match=key):
            read(bert(**{key: value}), key)
    else:
        if value >= 1 or key in FLAGS:
            assert read(bert(**{key: value}), key) == value


@pytest.mark.oracle
def test_the_defaults_are_those_of_the_config_class():
    from transformers import BertConfig  # noqa: PLC0415 - seconds, which only this test pays

    config = BertConfig()
    assert {key: getattr(config, key) for key in BERT.defaults} == dict(BERT.defaults)
    assert bert().num_labels.value == config.num_labels


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("768", "the string '768'; an integer is needed"),
        (768.0, "768.0; an integer is needed"),
        (float("nan"), "nan; an integer is needed"),
        (float("inf"), "inf; an integer is needed"),
        (True, "true; an integer is needed"),
        (None, "null; an integer is needed"),
        ([768], "a list; an integer is needed"),
        ({}, "an object; an integer is needed"),
        pytest.param("7" * 999, f"the string '{'7' * 50}...{'7' * 50}'; an", id="999 characters"),
    ],
)
def test_a_size_that_is_none_is_named_with_its_value(value, shown):
    with pytest.raises(CheckpointError, match="^hidden_size is " + re.escape(shown)):
        bert(hidden_size=value).dim("hidden_size")


@pytest.mark.parametrize("size", [-1, 2**62, 2**63, 10**300])
@pytest.mark.parametrize("key", ["type_vocab_size", "intermediate_size", "hidden_size"])
def test_a_size_that_no_tensor_can_have_is_refused_where_one_would_have_it(key, size):
    assert bert(**{key: size}).integer(key) == size
    values = {key: size, "num_attention_heads": 1}
    what = "a negative size" if size < 0 else "more numbers than torch can address"
    assert f".weight would have {what}" in refusal("BertModel", **values)


@pytest.mark.parametrize("key", ["num_hidden_layers", "type_vocab_size", "intermediate_size"])
def test_what_a_model_can_do_without_may_be_zero(key):
    assert not refusal("BertModel", **{key: 0})


def test_a_negative_number_of_layers_is_none_of_them():
    none, fewer = (catalogue.expect(config_of(num_hidden_layers=n), "BertModel") for n in (0, -2))
    assert fewer.tensors == none.tensors
    assert fewer.faults == ()


@pytest.mark.parametrize("value", [0, 1, "false", None, []])
def test_a_flag_is_true_or_false(value):
    assert bert(is_decoder=True).flag("is_decoder") is True
    with pytest.raises(CheckpointError, match=r"^is_decoder is .*; true or false is needed$"):
        bert(is_decoder=value).flag("is_decoder")


@pytest.mark.parametrize(
    ("values", "labels"),
    [
        ({}, 2),
        ({"id2label": None}, 2),
        ({"label2id": {"a": 0, "b": 1, "c": 2}}, 2),
        ({"num_labels": 5}, 5),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, 3),
        ({"id2label": {"0": "a", "00": "b"}}, 1),
        ({"id2label": {"0": "a"}, "num_labels": 5}, 5),
    ],
)
def test_num_labels_beats_id2label_which_beats_two(values, labels):
    assert config_of(**values).num_labels.value == labels


def test_without_labels_a_familys_own_number_of_them_beats_two():
    three = Family(
        model_type="three", prefix="model", base="ThreeModel", defaults={"num_labels": 3}
    )
    config = config_of().of(three)
    assert (config.num_labels.value, config.defaulted) == (3, ("num_labels",))
    assert config_of(id2label={"0": "a"}).of(three).num_labels.value == 1
    assert config_of(num_labels=5).of(three).num_labels.value == 5


def test_a_number_of_labels_that_transformers_misreads_is_refused():
    with pytest.raises(CheckpointError, match=r"^num_labels is "):
        _ = config_of(num_labels=True).num_labels


def test_a_negative_number_of_labels_is_none_of_them():
    assert config_of(num_labels=-1).num_labels.value == 0


def test_a_key_that_neither_the_config_nor_its_class_has_is_named():
    with pytest.raises(CheckpointError, match=r"^kv_heads is not in the config, and its class"):
        bert().dim("kv_heads")


def test_only_the_defaults_that_were_used_are_recorded():
    config = bert(hidden_size=8, num_hidden_layers=1)
    config.dim("hidden_size")
    config.dim("vocab_size")
    config.flag("is_decoder")
    assert config.defaulted == ("is_decoder", "vocab_size")
    assert config.of(BERT).defaulted == ()


NAMED = Family(
    model_type="named",
    prefix="",
    base="Named",
    defaults={
        "n_embd": 8,
        "n_inner": None,
        "widths": (4, 6),
        "text_config": {"n_embd": 3},
        "image_size": 5,
        "act": "relu",
        "ratio": 2,
    },
    synonyms={"hidden_size": "n_embd"},
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


@pytest.mark.parametrize("asked", ["hidden_size", "n_embd"])
@pytest.mark.parametrize(
    ("values", "size", "default"),
    [({}, 8, True), ({"n_embd": 4}, 4, False), ({"hidden_size": 5, "n_embd": 4}, 5, False)],
)
def test_a_synonym_is_the_same_symbol_under_the_classs_own_key(asked, values, size, default):
    (symbol,) = named(**values).dim(asked).symbols
    assert symbol == Symbol(letter="D", key="n_embd", value=size, default=default)


def test_an_error_names_the_key_as_the_config_spells_it():
    with pytest.raises(CheckpointError, match=r"^hidden_size is null; an integer is needed"):
        named(hidden_size=None).dim("n_embd")
    with pytest.raises(CheckpointError, match=r"^text_config\.hidden_size is null; an integer"):
        named(text_config={"hidden_size": None}).nested("text_config", NAMED).dim("n_embd")


def test_a_null_is_no_size_and_a_zero_is_one():
    assert named().optional("n_inner") is None
    assert named(n_inner=None).optional("n_inner") is None
    assert named().defaulted == ()
    assert str(named(n_inner=0).optional("n_inner") or "never") == "F"
    with pytest.raises(CheckpointError, match=r"^n_inner is null; an integer is needed$"):
        named().dim("n_inner")


def test_a_word_may_say_the_same_as_null():
    assert named().optional("n_inner", unless="auto") is None
    assert named(n_inner="auto").optional("n_inner", unless="auto") is None
    assert str(named(n_inner=3).optional("n_inner", unless="auto")) == "F"
    with pytest.raises(CheckpointError, match=r"^n_inner is the string 'auto'; an integer"):
        named(n_inner="auto").optional("n_inner")


@pytest.mark.parametrize("value", [-1, 0])
def test_zero_or_less_may_say_that_there_is_none(value):
    assert named(n_inner=value).positive("n_inner") is None
    assert str(named(n_inner=1).positive("n_inner")) == "F"
    with pytest.raises(CheckpointError, match=r"^n_inner is null; an integer is needed$"):
        named().positive("n_inner")


@pytest.mark.parametrize("value", ["p2c|c2p", "p2c | c2p ", ["p2c", "c2p"]])
def test_strings_may_stand_in_one_with_a_separator(value):
    assert named(kinds=value).texts("kinds", separator="|") == ("p2c", "c2p")
    with pytest.raises(CheckpointError, match=r"^kinds is the string 'p2c\|c2p'; a list is needed"):
        named(kinds="p2c|c2p").texts("kinds")


def test_the_sizes_of_a_list_are_letters_of_their_own():
    first, second = named(widths=[7, 9]).dims("widths")
    assert (str(first * second), (first * second).value) == ("widths[0]*widths[1]", 63)
    assert named().integers("widths", length=2) == (4, 6)
    assert named(widths=["a"]).texts("widths") == ("a",)


def test_a_list_whose_items_count_from_the_end_may_be_negative():
    assert named(widths=[-2, 3]).integers("widths") == (-2, 3)


@given(st.floats(0, 9) | st.sampled_from([0.29, 2.6667, 1.1]), st.integers(0, 2000))
def test_a_scaled_size_is_pythons_own_product_rounded_down(ratio, width):
    size = named(ratio=ratio, hidden_size=width + 1).scaled("ratio", dim(width))
    assert size.value == int(ratio * width)


@pytest.mark.parametrize(
    ("ratio", "formula"), [(4.0, "4*D"), (4, "4*D"), (0.5, "D/2"), (2.6667, "floor(26667*D/10000)")]
)
def test_a_scaled_size_is_written_with_its_ratio(ratio, formula):
    config = named(ratio=ratio, hidden_size=64)
    assert str(config.scaled("ratio", config.dim("hidden_size"))) == formula


@pytest.mark.parametrize(
    ("value", "pair"), [(6, ("image_size",) * 2), ([6, 8], ("image_size[0]", "image_size[1]"))]
)
def test_an_image_has_one_size_or_two(value, pair):
    assert tuple(map(str, named(image_size=value).pair("image_size"))) == pair


@pytest.mark.parametrize(
    ("read", "value", "message"),
    [
        (lambda c: c.dims("widths"), 7, r"^widths is 7; a list is needed$"),
        (lambda c: c.dims("widths"), [1, "2"], r"^widths is the string '2'; an integer is needed$"),
        (lambda c: c.texts("widths"), [1], r"^an item of widths is 1; a string is needed$"),
        (lambda c: c.integers("widths", length=3), [1], r"^widths has 1 items; 3 are needed$"),
        (lambda c: c.pair("widths"), [1], r"^widths is a list; one size or two are needed$"),
        (lambda c: c.text("widths"), 1, r"^widths is 1; a string is needed$"),
        (lambda c: c.real("widths"), True, r"^widths is true; a number is needed$"),
        (lambda c: c.scaled("widths", dim(2)), float("nan"), r"^widths is nan; a number is needed"),
        (lambda c: c.nested("widths"), [], r"^widths is a list; an object is needed$"),
    ],
)
def test_a_value_of_another_kind_is_named(read, value, message):
    with pytest.raises(CheckpointError, match=message):
        read(named(widths=value))


def test_strings_and_numbers_are_read_as_they_are():
    assert (named().text("act"), named(act="gelu").text("act")) == ("relu", "gelu")
    assert (named().real("ratio"), named(ratio=0.5).real("ratio")) == (2.0, 0.5)


@pytest.mark.parametrize(
    ("values", "size", "default"),
    [
        ({}, 3, True),  # the outer class's own default for the whole object
        ({"text_config": None}, 3, True),
        ({"text_config": {}}, 8, True),  # the inner class's default for the key
        ({"text_config": {"hidden_size": 6}}, 6, False),
    ],
)
def test_a_nested_config_has_letters_and_keys_of_its_own(values, size, default):
    inner = named(**values).nested("text_config", NAMED)
    (symbol,) = inner.dim("hidden_size").symbols
    assert symbol == Symbol(letter="D_text", key="text_config.n_embd", value=size, default=default)


def test_an_older_name_of_a_nested_config_gives_its_letters_the_same_subscript():
    inner = named(text_config_dict={"n_embd": 6}).nested("text_config_dict", NAMED)
    (symbol,) = inner.dim("n_embd").symbols
    assert (symbol.letter, symbol.key) == ("D_text", "text_config_dict.n_embd")


@pytest.mark.parametrize(
    ("values", "states"),
    [
        ({}, False),
        ({"hidden_size": None}, False),
        ({"hidden_size": 8}, True),
        ({"n_embd": 8}, True),
    ],
)
def test_a_config_states_a_key_that_it_has_and_not_as_null(values, states):
    config = named(**values)
    assert config.states("n_embd") is config.states("hidden_size") is states
    assert config.defaulted == ()


@pytest.mark.parametrize(
    ("value", "length"), [(-2, 1), (3, 1), ([-2], 1), ([1, -2, 3], 3), ([], 0)]
)
def test_one_integer_is_as_long_as_a_list_of_one(value, length):
    assert named(widths=value).length("widths") == length
    with pytest.raises(CheckpointError, match=r"^widths is the string '3'; a list is needed$"):
        named(widths="3").length("widths")


def test_defaults_within_a_nested_config_are_recorded_with_their_path():
    config = named(text_config={})
    config.nested("text_config", NAMED).dim("n_embd")
    config.dim("n_embd")
    assert config.defaulted == ("n_embd", "text_config.n_embd")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ({}, None),
        ({"dtype": None}, None),
        ({"torch_dtype": "auto"}, None),
        ({"torch_dtype": "float32"}, "F32"),
        ({"torch_dtype": "torch.bfloat16"}, "BF16"),
        ({"dtype": "float16"}, "F16"),
        ({"dtype": "float8_e4m3fn"}, "F8_E4M3"),
        ({"dtype": "bfloat16", "torch_dtype": "float32"}, "BF16"),
        ({"dtype": None, "torch_dtype": "float32"}, "F32"),
        ({"text_config": {"dtype": "bfloat16"}}, "BF16"),
        ({"text_config": {"torch_dtype": "bfloat16"}, "vision_config": {}}, "BF16"),
        ({"text_config": {"dtype": "bfloat16"}, "vision_config": {"dtype": "float32"}}, None),
        ({"dtype": "float16", "text_config": {"dtype": "bfloat16"}}, "F16"),
        ({"dtype": "auto", "text_config": {"dtype": "bfloat16"}}, None),
        ({"thinker_config": {"text_config": {"dtype": "float16"}}}, "F16"),
        ({"encoder": {"dtype": "float16"}, "decoder": {"dtype": "float16"}}, "F16"),
        ({"quantization_config": {"dtype": "float16"}, "task_specific": {"dtype": "x"}}, None),
    ],
)
def test_a_dtype_is_read_under_both_its_keys(values, dtype):
    assert config_of(**values).dtype == dtype


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
@pytest.mark.parametrize("value", ["fp16", 16, [], "torch.nn"])
def test_a_dtype_that_torch_does_not_have_is_named(key, value):
    with pytest.raises(CheckpointError, match=f"^{key} is .*; a dtype of torch is needed$"):
        _ = config_of(**{key: value}).dtype


@pytest.mark.oracle
def test_every_dtype_is_one_of_torch_and_of_the_format():
    import torch  # noqa: PLC0415 - seconds, which only this test pays

    from auditor.tensors import DTYPE_BITS  # noqa: PLC0415

    for name, stored in DTYPES.items():
        assert getattr(torch, name).itemsize * 8 == DTYPE_BITS[stored]


@pytest.mark.parametrize(
    ("values", "architectures", "model_type"),
    [
        ({}, (), None),
        ({"architectures": None, "model_type": None}, (), None),
        ({"architectures": ["A", "B"], "model_type": "bert"}, ("A", "B"), "bert"),
    ],
)
def test_what_a_config_says_of_itself(values, architectures, model_type):
    config = config_of(**values)
    assert config.architectures == architectures
    assert config.model_type == model_type


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("architectures", "BertModel", "^architectures is the string 'BertModel'; a list"),
        ("architectures", [1], "^a name in architectures is 1; a string is needed$"),
        ("model_type", ["bert"], "^model_type is a list; a string is needed$"),
    ],
)
def test_a_config_that_misnames_itself_is_refused(key, value, message):
    config = config_of(**{key: value})
    with pytest.raises(CheckpointError, match=message):
        getattr(config, key)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b"version https://git-lfs.github.com/spec/v1\nsize 5\n"]
)
def test_a_config_that_is_no_json_object_is_refused_by_file(content):
    with pytest.raises(CheckpointError, match=r"^sub/config\.json "):
        read_config("sub/config.json", content)


FLOATS = {"Infinity": float("inf"), "-Infinity": float("-inf")}
NO_FLOATS = (
    {"__float__": "1.0"},
    {"__float__": "inf"},
    {"__float__": 1},
    {"__float__": "NaN", "b": 1},
)


@pytest.mark.parametrize("name", FLOATS)
def test_a_float_that_json_cannot_write_is_read_as_transformers_writes_it(name):
    tagged = {"__float__": name}
    found = config_of(a=tagged, text_config={"b": [0.0, tagged]}).values
    assert found == {"a": FLOATS[name], "text_config": {"b": [0.0, FLOATS[name]]}}
    assert str(config_of(a={"__float__": "NaN"}).values["a"]) == "nan"


@pytest.mark.oracle
@settings(deadline=None)
@given(
    st.recursive(
        st.floats()
        | st.sampled_from([{"__float__": name} for name in (*FLOATS, "NaN")])
        | st.sampled_from(NO_FLOATS)
        | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    )
)
def test_what_stands_for_a_float_is_what_transformers_takes_for_one(value):
    from transformers import PreTrainedConfig  # noqa: PLC0415 - seconds

    theirs = PreTrainedConfig._decode_special_floats({"a": value})  # noqa: SLF001 - its own word
    assert repr(dict(config_of(a=value).values)) == repr(theirs)
