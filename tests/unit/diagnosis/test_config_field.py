"""config-field, head-not-saved and their kin on a tiny BERT, as its closed form has it."""

import json

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.changes import with_shapes, with_values
from support.checkpoints import TINY, expect, stored, stored_by
from support.examples import examples
from support.faults.families import MORE
from support.small_snapshots import snapshot_of

from auditor.analytic import Config, Role, catalogue
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot import Snapshot
from auditor.diagnosis.causes import config_field
from auditor.diagnosis.solving import joint


def tiny(target="BertForMaskedLM", **values) -> Snapshot:
    tensors = stored_by(expect(target))
    return with_values(snapshot_of(tensors, **TINY, architectures=[target]), values)


def diagnosed(**values):
    target = values.pop("target", "BertForMaskedLM")
    report = examine(tiny(target, **values), Options(requested="tiny"))
    return [
        (one.cause, {key: (was, held) for key, was, held in one.fields}) for one in report.diagnosis
    ]


@pytest.mark.parametrize(
    ("key", "declared", "held"),
    [
        ("vocab_size", 13, 11),
        ("hidden_size", 6, 4),
        ("hidden_size", 5, 4),  # no model can be built of it: it is not a multiple of the heads
        ("intermediate_size", 80, 8),
        ("num_hidden_layers", 1, 2),
        ("num_hidden_layers", 7, 2),
        ("max_position_embeddings", 7, 6),
        ("type_vocab_size", 1, 2),
        ("num_hidden_layers", 2**64, 2),  # more than len() can say
        ("vocab_size", 10**30, 11),
        ("hidden_size", 10**600, 4),
    ],
)
def test_a_key_is_solved_for(key, declared, held):
    assert diagnosed(**{key: declared}) == [("config-field", {key: (declared, held)})]


@pytest.mark.parametrize("declared", [11, 13])
def test_a_bias_for_each_token_that_was_not_resized_is_half_of_a_resize(declared):
    words = "bert.embeddings.word_embeddings.weight"
    resized = with_shapes(tiny(), {words: (13, 4)})
    report = examine(with_values(resized, {"vocab_size": declared}), Options(requested="tiny"))
    [found] = report.diagnosis
    assert (found.cause, found.fields) == (
        "half-resized",
        (("vocab_size", declared, 24 - declared),),
    )


def test_two_keys_are_one_cause():
    fields = {"vocab_size": (13, 11), "num_hidden_layers": (3, 2)}
    [(cause, found)] = diagnosed(vocab_size=13, num_hidden_layers=3)
    assert (cause, found) == ("config-field", fields)


def test_a_number_of_600_digits_is_not_printed():
    report = examine(tiny(num_hidden_layers=10**600), Options(requested="tiny"))
    [found] = report.diagnosis
    assert found.summary == (
        "num_hidden_layers is 10000000000000000000... (601 digits), the files hold 2"
    )
    assert len(found.fix) < 200


@pytest.mark.parametrize(
    ("key", "declared", "held", "said", "fix"),
    [
        (
            "num_hidden_layers",
            "2",
            2,
            'num_hidden_layers is "2", the files hold 2',
            "set num_hidden_layers = 2 in config.json",
        ),
        (
            "architectures",
            "BertForMaskedLM",
            ["BertForMaskedLM"],
            'architectures is "BertForMaskedLM", the files hold ["BertForMaskedLM"]',
            'set architectures = ["BertForMaskedLM"] in config.json',
        ),
    ],
)
def test_a_value_of_the_wrong_kind_is_distinguished_from_a_right_one(
    key, declared, held, said, fix
):
    report = examine(tiny(**{key: declared}), Options(requested="tiny"))
    [found] = report.diagnosis
    assert (found.cause, found.fields) == ("config-field", ((key, declared, held),))
    assert found.summary.startswith(said)
    assert found.fix == fix


@pytest.mark.parametrize("said", [None, "false", 0, "no"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_tie_of_the_wrong_kind_is_what_the_files_hold(said, tied):
    config = {**TINY, "model_type": "llama"}
    tensors = stored_by(expect("LlamaForCausalLM", **config, tie_word_embeddings=tied))
    shot = snapshot_of(tensors, **config, architectures=["LlamaForCausalLM"])
    report = examine(with_null(shot, "tie_word_embeddings", said), Options(requested="tiny"))
    [found] = report.diagnosis
    assert (found.cause, found.fields) == ("config-field", (("tie_word_embeddings", said, tied),))


def with_null(shot, key, value):
    """The config with that value, which may be null."""
    content = json.dumps(json.loads(shot.config.content) | {key: value}).encode()
    return replace(shot, config=replace(shot.config, content=content))


def test_a_value_that_the_config_spells_as_a_string_has_no_alternative():
    config, target = {**TINY, "model_type": "llama"}, "LlamaForCausalLM"
    tensors = stored_by(expect(target, **config, tie_word_embeddings=False))
    shot = snapshot_of(tensors, **config, architectures=[target], tie_word_embeddings="false")
    [found] = examine(shot, Options(requested="tiny")).diagnosis
    assert found.fields == (("tie_word_embeddings", "false", False),)
    assert "would explain as much" not in found.summary


@pytest.mark.parametrize("stated", [{"tie_word_embeddings": True}, {}])
def test_a_stored_head_is_not_reported_to_differ_from_the_embeddings(stated):
    """No header tells whether a copy has other values, and setting the key to false assumes so."""
    config = {**TINY, "model_type": "gemma", "head_dim": 2, **stated}  # tied by default
    head = stored("lm_head.weight", (TINY["vocab_size"], TINY["hidden_size"]))
    tensors = [*stored_by(expect("GemmaForCausalLM", **config)), head]
    shot = snapshot_of(tensors, **config, architectures=["GemmaForCausalLM"])
    [found] = examine(shot, Options(requested="tiny")).diagnosis
    assert found.fields == (("tie_word_embeddings", True, False),)
    assert "the files hold" not in found.summary
    assert "if the head has values of its own (audit --values tells)" in found.fix


def test_labels_are_counted_by_their_names():
    labels = {str(number): "x" for number in range(5)}
    found = diagnosed(target="BertForSequenceClassification", id2label=labels)
    assert found == [("config-field", {"num_labels": (5, 2)})]


def test_a_sound_checkpoint_has_no_cause():
    assert diagnosed() == []


# --- what one value closes needs no second one --------------------------------------------------


def first_names(name):
    """As the first version of the library spelt them."""
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
        "LayerNorm.bias", "LayerNorm.beta"
    )


@pytest.fixture
def one_step(monkeypatch):
    """Allow one step of a search: plain lengths."""
    monkeypatch.setattr(joint, "_MOST_ROUNDS", 1)


def named(tensors, **values):
    config = {**TINY, "architectures": ["BertForMaskedLM"], **values}
    [found] = examine(snapshot_of(tensors, **config), Options(requested="x")).diagnosis
    return found.cause, found.fields


@pytest.mark.parametrize(("key", "declared"), [("num_hidden_layers", 1), ("hidden_size", 6)])
@pytest.mark.usefixtures("one_step")
def test_names_of_older_versions_are_those_of_today(key, declared):
    tensors = [
        one._replace(name=first_names(one.name)) for one in stored_by(expect("BertForMaskedLM"))
    ]
    fields = ((key, declared, TINY[key]),)
    assert named(tensors, **{key: declared}) == ("config-field", fields)


@pytest.mark.usefixtures("one_step")
def test_what_another_class_has_is_left_aside():
    D = TINY["hidden_size"]
    pooler = [
        stored("bert.pooler.dense.weight", (D, D)),
        stored("bert.pooler.dense.bias", (D,)),
    ]
    tensors = [*stored_by(expect("BertForMaskedLM")), *pooler]
    assert named(tensors, hidden_size=6) == ("config-field", (("hidden_size", 6, D),))


# --- as many layers as people have: files hold layer 10 before layer 9 --------------------------

LAYERS = 200  # a large model, of which there are few tries


def deep(layers, declared, names=()):
    """A BERT of small layers, or other names in its place, under a config of so many layers."""
    tensors = stored_by(expect("BertForMaskedLM", num_hidden_layers=layers))
    if names:
        tensors = [one._replace(name=name) for one, name in zip(tensors, names, strict=False)]
    config = {**TINY, "architectures": ["BertForMaskedLM"], "num_hidden_layers": declared}
    return snapshot_of(tensors, **config)


@pytest.mark.slow
@given(st.integers(2, 40), st.integers(1, 40))
@examples(20)
@example(12, 11)
@example(LAYERS, LAYERS - 1)
@example(LAYERS, LAYERS // 10)
@example(LAYERS, 2 * LAYERS)
def test_a_wrong_number_of_layers_is_named(layers, declared):
    assume(layers != declared)
    report = examine(deep(layers, declared), Options(requested="deep"))
    [found] = report.diagnosis
    assert found.cause == "config-field"
    assert found.fields == (("num_hidden_layers", declared, layers),)


def test_large_models_of_unexpected_names_are_solved_for_no_field(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a config was solved")

    monkeypatch.setattr(config_field, "solve", refuse)
    names = [f"some.{at:x}.name" for at in range(5_000)]
    report = examine(deep(LAYERS, LAYERS, names), Options(requested="large"))
    assert report.verdict == "findings"
    assert report.diagnosis == ()


# --- layers that predict further tokens, numbered on after the model's own -----------------------


DEEPSEEK = {**MORE["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"}
DRAFTING = "DeepseekV3ForCausalLM"


def drafting(layers, declared):
    """As DeepSeek-V3 is stored: a layer more, and beside it what its prediction needs."""
    whole = {**DEEPSEEK, "num_hidden_layers": layers + 1, "num_nextn_predict_layers": 0}
    V, D = DEEPSEEK["vocab_size"], DEEPSEEK["hidden_size"]
    beside = {
        "embed_tokens": (V, D),
        "enorm": (D,),
        "hnorm": (D,),
        "eh_proj": (D, 2 * D),
        "shared_head.norm": (D,),
        "shared_head.head": (V, D),
    }
    expected = (one for one in expect(DRAFTING, **whole).tensors if one.role is not Role.TIED)
    tensors = [stored(one.name, one.shape) for one in expected]
    tensors += [stored(f"model.layers.{layers}.{name}.weight", of) for name, of in beside.items()]
    config = {**DEEPSEEK, "num_hidden_layers": declared, "num_nextn_predict_layers": 1}
    return snapshot_of(tensors, **config, architectures=[DRAFTING])


@pytest.mark.parametrize("layers", [3, 12])
@pytest.mark.parametrize("more", [-2, -1, 0, 1, 2, 7])
def test_layers_that_predict_further_tokens_are_not_counted(layers, more):
    report = examine(drafting(layers, layers + more), Options(requested="drafting"))
    found = [(one.cause, one.fields) for one in report.diagnosis]
    fields = (("num_hidden_layers", layers + more, layers),)
    assert found == ([("config-field", fields)] if more else [])
    assert (report.verdict == "clean") == (more == 0)


QWEN2 = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "vocab_size": 48,
    "hidden_size": 56,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def test_a_width_of_heads_that_only_the_code_reads_is_one_of_several():
    snapshot = snapshot_of(stored_by(expect("Qwen2ForCausalLM", **QWEN2, head_dim=16)), **QWEN2)
    [found] = examine(snapshot, Options(requested="pruned")).diagnosis
    keys = ("head_dim", "num_attention_heads", "num_key_value_heads")
    fitting = [tuple(one[key] for key in keys) for one in found.alternatives]
    assert found.fields == ()
    assert {(16, 4, 2), (32, 2, 1), (8, 8, 4)} <= set(fitting)


LLAMA = {**QWEN2, "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 96}


@pytest.mark.parametrize("groups", [2, 4])
def test_numbers_of_heads_that_fit_as_well_are_listed(groups):
    tensors = stored_by(
        expect("LlamaForCausalLM", **LLAMA | {"num_attention_heads": 3, "num_key_value_heads": 1})
    )
    config = LLAMA | {"num_attention_heads": 4, "num_key_value_heads": groups}
    [found] = examine(snapshot_of(tensors, **config), Options(requested="pruned")).diagnosis
    pairs = [tuple(one.values()) for one in found.alternatives]
    assert {(3, 1), (6, 2), (12, 4)} <= set(pairs)
    assert found.fields == ()
    assert found.summary.startswith(
        f"the files do not fit num_attention_heads 4, num_key_value_heads {groups}; "
        "the shapes do not decide between num_attention_heads/num_key_value_heads = "
    )


def test_a_stated_width_of_heads_decides_their_number():
    tensors = stored_by(expect("LlamaForCausalLM", **LLAMA | {"num_key_value_heads": 1}))
    widths = LLAMA | {"head_dim": 24}
    [found] = examine(snapshot_of(tensors, **widths), Options(requested="stated")).diagnosis
    assert found.fields == (("num_key_value_heads", 2, 1),)
    assert "the files hold 1 if head_dim is 24 as stated; " in found.summary


@pytest.mark.parametrize("key", ["attention_bias", "mlp_bias"])
@pytest.mark.parametrize("stored_too", [True, False])
def test_biases_that_are_stored_prove_their_flag_and_lost_ones_do_not(key, stored_too):
    tensors = stored_by(expect("LlamaForCausalLM", **LLAMA, **{key: stored_too}))
    snapshot = snapshot_of(tensors, **LLAMA, **{key: not stored_too})
    [found] = examine(snapshot, Options(requested="biases")).diagnosis
    if stored_too:
        assert found.fields == ((key, False, True),)
    else:
        assert (found.fields, found.alternatives) == ((), ({key: False},))
        assert f"either they were lost or {key} was false" in found.summary


@pytest.mark.parametrize("model_type", ["t5", "mt5"])
def test_the_activation_of_a_gated_t5_is_not_decided(model_type):
    sizes = {"vocab_size": 50, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2}
    sizes |= {"model_type": model_type, "num_heads": 4}
    target = f"{model_type.upper()}ForConditionalGeneration"
    gated = Config(values=sizes | {"feed_forward_proj": "gated-gelu"})
    config = sizes | {"feed_forward_proj": "relu", "architectures": [target]}
    tensors = stored_by(catalogue.expect(gated, target))
    [found] = examine(snapshot_of(tensors, **config), Options(requested="gated")).diagnosis
    words = [one["feed_forward_proj"] for one in found.alternatives]
    assert {"gated-gelu", "gated-silu"} <= set(words)
    assert found.fields == ()


def test_of_types_with_equal_tensors_the_type_of_the_declared_class_is_named():
    sizes = {key: value for key, value in QWEN2.items() if key != "model_type"}
    declared = sizes | {"model_type": "mixtral", "architectures": ["MistralForCausalLM"]}
    tensors = stored_by(expect("MistralForCausalLM", **sizes | {"model_type": "mistral"}))
    [found] = examine(snapshot_of(tensors, **declared), Options(requested="dense")).diagnosis
    assert found.cause == "other-architecture"
    assert ("model_type", "mixtral", "mistral") in found.fields


def test_keys_that_explain_fewer_names_than_they_are_explain_nothing():
    """Weights in an unknown packing, with a bias for each in another dtype."""
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "dtype": "bfloat16",
        "vocab_size": 40,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -1},
    }
    tensors = []
    for one in stored_by(expect("LlamaForCausalLM", **config)):
        module, rows = one.name.removesuffix(".weight"), one.shape[0]
        if "_proj" not in module:
            tensors.append(stored(one.name, one.shape, dtype="BF16"))
            continue
        tensors.append(stored(f"{module}.qweight", (one.shape[1] // 8, rows), dtype="I32"))
        tensors += [stored(f"{module}.{last}", (rows, 1)) for last in ("zeros", "scales")]
        tensors.append(stored(f"{module}.bias", (rows,)))
    report = examine(snapshot_of(tensors, **config), Options(requested="packed"))
    assert report.verdict == "findings"
    assert report.diagnosis == ()


def test_a_head_of_other_rows_that_the_class_ties_is_half_of_a_resize():
    config = {
        "model_type": "t5",
        "architectures": ["T5ForConditionalGeneration"],
        "vocab_size": 52,
        "hidden_size": 16,
        "d_kv": 4,
        "d_ff": 24,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "tie_word_embeddings": False,
    }
    tensors = [*stored_by(expect("T5ForConditionalGeneration", **config))]
    tensors = [one for one in tensors if one.name != "lm_head.weight"]
    shot = snapshot_of([*tensors, stored("lm_head.weight", (64, 16))], **config)
    [found] = examine(shot, Options(requested="resized")).diagnosis
    assert found.cause == "half-resized"
    assert "lm_head.weight has 64 rows, and shared.weight has 52 as declared" in found.summary
