"""A config as a file: its dtype, what it says of itself, and its JSON."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.bert_configs import config_of

from auditor.analytic import read_config
from auditor.analytic.config import DTYPES
from auditor.errors import CheckpointError


def test_a_dtype_is_read_under_both_its_keys(subtests):
    for values, dtype in [
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
    ]:
        with subtests.test(values=values, dtype=dtype):
            assert config_of(**values).dtype == dtype


def test_a_dtype_that_torch_does_not_have_is_named(subtests):
    for value in ["fp16", 16, [], "torch.nn"]:
        for key in ["dtype", "torch_dtype"]:
            with (
                subtests.test(key=key, value=value),
                pytest.raises(CheckpointError, match=f"^{key} is .*, expected a dtype of torch$"),
            ):
                _ = config_of(**{key: value}).dtype


@pytest.mark.oracle
def test_every_dtype_is_one_of_torch_and_of_the_format():
    import torch  # noqa: PLC0415 - seconds, which only this test pays

    from auditor.tensors import DTYPE_BITS  # noqa: PLC0415

    for name, stored in DTYPES.items():
        assert getattr(torch, name).itemsize * 8 == DTYPE_BITS[stored]


def test_a_config_declares_its_classes_and_its_type(subtests):
    for values, architectures, model_type in [
        ({}, (), None),
        ({"architectures": None, "model_type": None}, (), None),
        ({"architectures": ["A", "B"], "model_type": "bert"}, ("A", "B"), "bert"),
    ]:
        with subtests.test(values=values, architectures=architectures, model_type=model_type):
            config = config_of(**values)
            assert config.architectures == architectures
            assert config.model_type == model_type


def test_a_config_that_misnames_itself_is_refused(subtests):
    for key, value, message in [
        ("architectures", "BertModel", "^architectures is the string 'BertModel', expected a list"),
        ("architectures", [1], "^a name in architectures is 1, expected a string$"),
        ("model_type", ["bert"], "^model_type is a list, expected a string$"),
    ]:
        with subtests.test(key=key, value=value, message=message):
            config = config_of(**{key: value})
            with pytest.raises(CheckpointError, match=message):
                getattr(config, key)


def test_a_config_that_is_no_json_object_is_refused_by_file(subtests):
    for content in [b"", b"[]", b"{", b"version https://git-lfs.github.com/spec/v1\nsize 5\n"]:
        with (
            subtests.test(content=content),
            pytest.raises(CheckpointError, match=r"^sub/config\.json "),
        ):
            read_config("sub/config.json", content)


FLOATS = {"Infinity": float("inf"), "-Infinity": float("-inf")}
NO_FLOATS = (
    {"__float__": "1.0"},
    {"__float__": "inf"},
    {"__float__": 1},
    {"__float__": "NaN", "b": 1},
)


def test_a_float_that_json_cannot_write_is_read_as_transformers_writes_it(subtests):
    for name, value in FLOATS.items():
        with subtests.test(name=name):
            tagged = {"__float__": name}
            found = config_of(a=tagged, text_config={"b": [0.0, tagged]}).values
            assert found == {"a": value, "text_config": {"b": [0.0, value]}}
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
