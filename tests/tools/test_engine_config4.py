import pytest

pytest.importorskip("transformers")

from engines.config4 import Fill, as_version_4, fill_of, missing_keys, with_keys

LLAMA = {
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 512345.0},
}


def test_messages_name_the_missing_keys(subtests):
    for error, keys in [
        ("TypeError: A.__init__() missing 1 required positional argument: 'a'", ("a",)),
        (
            "TypeError: A.__init__() missing 2 required positional arguments: 'a' and 'b'",
            ("a", "b"),
        ),
        ("KeyError: 'a'", ("a",)),
        ("ValueError: a not exist,please check config", ("a",)),
        ("ValueError: Missing 1 parameters: a.weight.", ()),
    ]:
        with subtests.test(error=error, keys=keys):
            assert missing_keys(error) == keys


def test_version_4_writes_the_rope_base_at_the_top():
    older = as_version_4(LLAMA)
    assert older["rope_theta"] == 512345.0
    assert older["torch_dtype"] == "bfloat16"
    assert not {"rope_parameters", "dtype"} & set(older)


def test_a_missing_key_takes_the_value_that_stands_elsewhere():
    fill = fill_of(LLAMA, "llama", "rope_theta")
    assert fill == Fill(512345.0, "rope_parameters.rope_theta")
    assert with_keys(LLAMA, {"rope_theta": fill})["rope_theta"] == 512345.0
    assert fill_of(LLAMA, "llama", "head_dim") == Fill(16, "hidden_size/num_attention_heads")
    assert fill_of({"text_config": LLAMA}, "llava", "hidden_size") == Fill(
        64, "text_config.hidden_size"
    )
    assert fill_of(LLAMA, "llama", "key_of_no_config") is None
