""""""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.bert_configs import CLASSES, bert_values, config_of, refusal
from support.formulas import evaluate

from auditor.analytic import (
    Config,
    Expectation,
    Symbol,
    catalogue,
    families,
    layers,
    listing,
    tree_expectation,
)
from auditor.analytic.blocks import LayerNorm, Linear, Module, Repeat, Submodel, module
from auditor.analytic.dims import dim
from auditor.analytic.families import BY_DATA, FILES, OLD_CLASSES, OLD_TYPES
from auditor.analytic.families.bert import BERT
from auditor.analytic.families.gpt2 import GPT2
from auditor.analytic.listing import inventory
from auditor.analytic.target import choose
from auditor.errors import CheckpointError, SourceError


@given(st.sampled_from(CLASSES), bert_values())
def test_the_legend_explains_every_letter_and_no_other(target, values):
    expected = catalogue.expect(config_of(**values), target)
    printed = [symbol for symbol in expected.legend if symbol.formula is None]
    assert [symbol.letter for symbol in printed] == sorted(
        {symbol.letter for symbol in printed}, key=expected.formula.index
    )
    for symbol in expected.legend:
        if symbol.formula is not None:
            assert evaluate(symbol.formula, printed) == symbol.value
        if symbol.key != "num_labels":
            assert symbol.default == (symbol.key not in values)
            assert symbol.value == values.get(symbol.key, BERT.defaults[symbol.key])


def test_a_feed_forward_width_is_written_as_a_multiple_of_the_width_where_it_is_one():
    F = Symbol(letter="F", key="intermediate_size", value=3072, default=True, formula="4*D")
    expected = catalogue.expect(config_of(), "BertModel")
    assert expected.legend[-1] == F
    assert expected.modules["encoder.layer.7"].formula == "12*D^2 + 13*D"

    expected = catalogue.expect(config_of(intermediate_size=3000), "BertModel")
    assert F._replace(value=3000, default=False, formula=None) in expected.legend
    assert expected.modules["encoder.layer.7"].formula == "4*D^2 + 2*D*F + 9*D + F"


def test_letters_that_formulas_do_without_stand_in_the_legend_in_one_order():
    expected = catalogue.expect(Config(values={"model_type": "bart"}), "BartModel")
    assert [one.letter for one in expected.legend if one.formula] == ["F", "F_decoder"]


def test_a_feed_forward_width_of_a_part_is_a_multiple_of_the_whole_models_width():
    values = {"d_model": 8, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    widths = {"encoder_ffn_dim": 32, "decoder_ffn_dim": 16}
    expected = catalogue.expect(config_of(**values, **widths), "BartModel")
    assert {symbol.letter: symbol.formula for symbol in expected.legend if symbol.formula} == {
        "F": "4*D",
        "F_decoder": "2*D",
    }
    assert expected.modules["encoder.layers"].formula == "N*(12*D^2 + 13*D)"
    assert expected.modules["decoder.layers"].formula == "N_decoder*(12*D^2 + 17*D)"


def test_defaults_are_listed_only_where_the_expectation_rests_on_them():
    values = {"vocab_size": 9, "hidden_size": 12, "max_position_embeddings": 5, "id2label": {}}
    assert catalogue.expect(config_of(**values), "BertForTokenClassification").defaults == (
        "add_cross_attention",
        "intermediate_size",
        "num_attention_heads",
        "num_hidden_layers",
        "type_vocab_size",
    )
    assert "num_labels" in catalogue.expect(config_of(), "BertForTokenClassification").defaults
    assert "num_labels" not in catalogue.expect(config_of(), "BertModel").defaults


def test_a_config_that_implies_no_model_is_the_checkpoints_fault(subtests):
    for values, message in [
        (
            {"hidden_size": 770},
            r"^hidden_size 770 is not a multiple of num_attention_heads 12: 770 = 64 \* 12 \+ 2$",
        ),
        (
            {"num_attention_heads": 0},
            r"^hidden_size 768 cannot be divided by num_attention_heads 0$",
        ),
        (
            {"num_hidden_layers": 10**9},
            r"^num_hidden_layers 1000000000 would imply 16,000,000,000 tensors, expected",
        ),
    ]:
        with subtests.test(values=values, message=message):
            assert re.match(message, refusal("BertModel", **values))


def test_a_size_below_nothing_is_the_checkpoints_fault():
    values = {"image_size": 4, "patch_size": 16, "window_size": 0, "num_hidden_layers": 1}
    config = Config(values={"model_type": "sam_vision_model", **values})
    message = r"^attn\.rel_pos_h would have a negative size: \(2\*floor\(.*\) - 1 = -1, D/H = 64\)$"
    with pytest.raises(CheckpointError, match=message):
        catalogue.expect(config, "SamVisionModel")


@pytest.fixture
def registry(monkeypatch) -> dict[object, object]:
    """A copy of the registry that a test may add to; everything is imported before."""
    catalogue.class_names()
    copy = dict(catalogue._ARCHITECTURES)  # noqa: SLF001 - there is no public way to add and undo
    monkeypatch.setattr(catalogue, "_ARCHITECTURES", copy)
    monkeypatch.setattr(catalogue, "_TYPES", dict(catalogue._TYPES))  # noqa: SLF001 - as above
    monkeypatch.setattr(catalogue, "_CLASSES", dict(catalogue._CLASSES))  # noqa: SLF001
    return copy


@pytest.mark.usefixtures("registry")
def test_two_keys_that_share_a_letter_are_the_family_authors_fault():
    @catalogue.architecture("BertBoth", BERT)
    def both(c: Config) -> Module:
        return module(a=LayerNorm(c.dim("num_experts")), b=LayerNorm(c.dim("num_local_experts")))

    assert catalogue.siblings("bert")[-1] == "BertBoth"
    with pytest.raises(ValueError, match=r"^num_.*experts and num_.*experts would both be E in"):
        catalogue.expect(config_of(num_experts=2, num_local_experts=3), "BertBoth")
    assert both(config_of(num_experts=2, num_local_experts=3))


@pytest.mark.usefixtures("registry")
def test_letters_of_two_configs_in_one_formula_differ_by_a_subscript():
    @catalogue.architecture("BertTowers", BERT)
    def towers(c: Config) -> Module:
        text = catalogue.base_model(c.nested("text_config"), "llama")
        return module(
            image=Linear(c.dim("hidden_size"), c.dim("intermediate_size"), bias=False),
            text=Submodel(text),
        )

    inner = {"hidden_size": 6, "intermediate_size": 18, "num_hidden_layers": 1, "vocab_size": 7}
    values = {"text_config": {"num_attention_heads": 2, **inner}, "hidden_size": 4}
    expected = catalogue.expect(config_of(**values, intermediate_size=8), "BertTowers")
    assert expected.formula == "V_text*D_text + N_text*(13*D_text^2 + 2*D_text) + 2*D^2 + D_text"
    assert evaluate(expected.formula, expected.legend) == expected.parameters
    assert {symbol.letter: symbol.formula for symbol in expected.legend if symbol.formula} == {
        "F": "2*D",
        "F_text": "3*D_text",
    }
    assert "text_config.mlp_bias" in expected.defaults
    assert expected.tensors[1].name == "text.embed_tokens.weight"
    unknown = config_of(text_config={"model_type": "no-such"})
    with pytest.raises(SourceError, match=r"is known for text_config\.model_type 'no-such'$"):
        catalogue.expect(unknown, "BertTowers")
    assert towers(config_of(**values, intermediate_size=8).of(BERT))


@pytest.mark.usefixtures("registry")
def test_a_class_of_two_model_types_takes_the_one_of_the_config():
    other = replace(BERT, model_type="llama", prefix="other")
    for family in (BERT, other):
        catalogue.architecture("BertTwo", family)(lambda _config: module(a=LayerNorm(3)))
    assert catalogue.types("BertTwo") == ("bert", "llama")
    for values, prefix in (({}, "bert"), ({"model_type": "llama"}, "other")):
        assert catalogue.expect(config_of(**values), "BertTwo").prefix == prefix
    choice = choose(config_of(model_type="llama", architectures=["BertTwo"]), None, catalogue)
    assert (choice.target, choice.model_type) == ("BertTwo", "llama")
    with pytest.raises(CheckpointError, match=r"BertTwo, which is bert or llama, but .* 'gpt2'$"):
        choose(config_of(model_type="gpt2", architectures=["BertTwo"]), None, catalogue)


def test_an_older_name_of_a_class_stands_for_todays():
    config = config_of(architectures=["LLaMAForCausalLM"], model_type="llama")
    choice = choose(config, None, catalogue)
    assert (choice.target, choice.declared) == ("LlamaForCausalLM", "LlamaForCausalLM")
    assert choice.notes == ("'LLaMAForCausalLM' is an older name of LlamaForCausalLM",)
    assert catalogue.expect(config, "LLaMAForCausalLM").target == "LlamaForCausalLM"
    assert (
        choose(config_of(model_type="llama"), "LLaMAForCausalLM", catalogue).target
        == "LlamaForCausalLM"
    )


def test_every_older_name_leads_to_a_known_class_or_type():
    assert all(catalogue.is_known(name) for name in OLD_CLASSES.values())
    assert not {*OLD_CLASSES} & {*catalogue.class_names()}
    assert {*OLD_TYPES.values()} <= {*FILES}


def test_every_file_of_families_has_the_types_that_the_index_lists(registry):
    package = Path(families.__file__).parent
    files = {path.stem for path in package.glob("*.py") if not path.stem.startswith("_")}
    assert files == {file for model_type, file in FILES.items() if model_type not in BY_DATA}
    for model_type, file in FILES.items():
        assert catalogue.siblings(model_type)
        assert catalogue.base_class(model_type) == catalogue.siblings(model_type)[0]
        assert model_type in BY_DATA or f"auditor.analytic.families.{file}" in sys.modules
    assert {model_type for model_type, _ in registry} == set(FILES)


def test_every_class_is_found_by_its_name_alone(monkeypatch):
    pairs = [(each, name) for each in catalogue.model_types() for name in catalogue.siblings(each)]
    asked: list[str] = []
    monkeypatch.setattr(catalogue, "load", asked.append)
    for model_type, name in pairs:
        asked.clear()
        assert model_type in catalogue.types(name)
        assert FILES[model_type] in map(FILES.get, asked)


@pytest.mark.slow
def test_one_family_is_imported_and_not_all():
    program = (
        "import sys, auditor.analytic as a; a.catalogue.expect(a.Config(values={}), 'BertModel');"
        "print(sorted(m for m in sys.modules if '.families.' in m and '.families._' not in m))"
    )
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout == "['auditor.analytic.families.bert']\n"


def test_a_class_has_one_closed_form():
    with pytest.raises(ValueError, match=r"^BertModel of bert has a closed form already$"):
        catalogue.architecture("BertModel", BERT)(lambda _config: pytest.fail("never built"))


def test_the_catalogue_lists_its_classes_by_name_and_by_family():
    assert catalogue.class_names() == tuple(sorted(catalogue.class_names()))
    assert catalogue.is_known("BertModel")
    assert not catalogue.is_known("BertModelX")
    assert catalogue.siblings("bert")[0] == catalogue.base_class("bert") == "BertModel"
    assert len(catalogue.siblings("bert")) == 9
    assert catalogue.siblings("no such type") == ()
    assert {catalogue.types(name) for name in catalogue.siblings("bert")} == {("bert",)}


@pytest.mark.slow
def test_a_closed_form_needs_no_library_of_models():
    program = (
        "import sys, auditor.analytic as a; a.catalogue.expect(a.Config(values={}), 'BertModel');"
        "print([m for m in ('torch', 'transformers', 'pandas', 'huggingface_hub', 'numpy')"
        " if m in sys.modules])"
    )
    done = subprocess.run(  # noqa: S603 - our own interpreter
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"


# --- caches shared by models ----------------------------------------------------------------------


# There is no public way to forget, and no other reason for one.
_WRITTEN = tree_expectation._written  # noqa: SLF001
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
def test_layers_that_list_modules_and_no_tensors_are_bounded_too(subtests):
    for body in [module(), module(a=module(), b=module())]:
        for count, kept in [(10, 1), (100_000, 0)]:
            with subtests.test(count=count, kept=kept, body=body):
                _MODULES.cache_clear()
                tree = module(layer=Repeat(dim(count), body))
                assert len(inventory(tree, {}).modules) > count
                assert _MODULES.cache_info().currsize == kept


def test_a_size_is_cached_for_its_family_alone(subtests):
    for family, width in [(BERT, 24), (GPT2, 768)]:
        with subtests.test(family=family, width=width):
            config = Config(values={"hidden_size": 24} if family is BERT else {})
            with pytest.raises(CheckpointError, match="hidden_sizes is not in the config"):
                config.dim("hidden_sizes")
            completed = config.of(family)
            assert completed.dim("hidden_size").value == completed.dim("hidden_size").value == width
            assert completed.defaulted == (() if family is BERT else ("n_embd",))
