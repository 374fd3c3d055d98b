"""Which GGUF files of a listing are one model, and which model a tag means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.checkpoint.selecting import FileSelection, select, select_describing, select_tagged
from auditor.checkpoint.shard_names import gguf_sets, shards_of, tagged_gguf_set
from auditor.errors import Reason, SourceError

QUANTS = ("IQ4_XS", "Q4_0", "Q4_K_M", "Q4_K_S", "Q4_K_XL", "Q8_0", "f16")
FILES = tuple(f"Meta-Llama-3-8B-Instruct.{quant}.gguf" for quant in QUANTS)
SHARDS = tuple(f"Q6_K/m-Q6_K-{number:05}-of-00003.gguf" for number in (1, 2, 3))
BESIDE = ("README.md", "config.json", "mmproj-model-f16.gguf", "m-imatrix.gguf", "imatrix.gguf")


@given(st.permutations([*FILES, *SHARDS, *BESIDE]))
def test_shards_are_one_model_and_what_serves_a_model_is_none(names):
    assert gguf_sets(names) == (*((name,) for name in FILES), SHARDS)


def test_a_tag_means_a_file_a_complete_part_of_its_name_or_shards():
    for quant, file in zip(QUANTS, FILES, strict=True):
        assert tagged_gguf_set([*FILES, *BESIDE], "o/n", quant.lower()) == (file,)
    assert tagged_gguf_set([*FILES, *SHARDS], "o/n", FILES[0]) == (FILES[0],)
    assert tagged_gguf_set([*FILES, *SHARDS], "o/n", "Q6_K") == SHARDS


def test_a_tag_that_means_no_model_or_several_is_refused(subtests):
    for names, tag, says in [
        (FILES, "Q4_K", r"no GGUF model of o/n is 'Q4_K', 'Meta.*and 2 more: name one, as in"),
        (FILES, "Llama", "7 of the 7 GGUF models of o/n are 'Llama'"),
        (BESIDE, "Q4_K_M", "o/n has no GGUF model, expected 'Q4_K_M'"),
    ]:
        with subtests.test(names=names, tag=tag), pytest.raises(SourceError, match=says):
            tagged_gguf_set(names, "o/n", tag)


def test_the_only_model_is_selected_and_safetensors_go_first():
    only = FileSelection(config="config.json", shards=SHARDS)
    assert select([*SHARDS, *BESIDE], "o/n") == only
    both = select([*SHARDS, "model.safetensors"], "o/n")
    assert both == FileSelection(config=None, weights="model.safetensors")
    assert select_tagged([*SHARDS, *BESIDE, "model.safetensors"], "o/n", "Q6_K") == only


def test_a_shard_brings_those_of_its_model():
    assert shards_of(SHARDS[1], [*FILES, *SHARDS]) == SHARDS
    assert shards_of("m-00001-of-00002.gguf", []) == ("m-00001-of-00002.gguf",)


def test_where_there_is_no_config_the_only_model_describes_itself():
    assert select_describing([*SHARDS, "README.md"], "o/n") == FileSelection(
        config=None, shards=SHARDS
    )
    assert select_describing([*SHARDS, *BESIDE], "o/n") == FileSelection(config="config.json")
    with pytest.raises(SourceError, match=r"o/n holds 7 GGUF models, .*: name one") as error:
        select_describing(FILES, "o/n")
    assert error.value.reason is Reason.NO_SAFETENSORS
    with pytest.raises(SourceError, match=r"o/n has no config\.json"):
        select_describing(["README.md"], "o/n")
