"""The names and shapes that an adapter's settings imply are those that peft itself saves."""

import json
from collections.abc import Collection
from itertools import product

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st
from support.adapters_by_peft import BASES, RefusedError, base_config, made
from support.bert_configs import config_of
from support.examples import ORACLE_EXAMPLES, one_in
from support.formulas import evaluate

from auditor.analytic import Expectation, Role, catalogue
from auditor.analytic.adapters import base_model_forms, expect_adapter, read_settings
from auditor.bounded.json_text import JsonFile
from auditor.errors import CheckpointError, SourceError

pytest.importorskip("peft", reason="the reference for adapters")
pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),
]

EXAMPLES = 5 * ORACLE_EXAMPLES
SLOW = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


def expectations(base: str, config: bytes, saved: Collection[str]) -> list[Expectation]:
    """What is expected, under each of the names that the base's modules may have."""
    target = BASES[base][0]
    values = config_of(**base_config(base))
    found = base_model_forms(catalogue.expect(values, target), catalogue.block_tree(values, target))
    answers: list[Expectation] = []
    faults = []
    file = JsonFile("adapter_config.json", config)
    for form in found:
        try:
            answers.append(expect_adapter(read_settings(file), form, saved))
        except (CheckpointError, SourceError) as error:
            faults.append(error)
    if not answers:
        raise faults[0]
    return answers


def assert_expected(base: str, config: bytes, saved: dict[str, tuple[int, ...]]) -> None:
    """Under one of the names all that is needed is saved, and nothing that is not known."""
    wrongs = []
    for found in expectations(base, config, saved):
        needed = {each.name: each.shape for each in found.tensors if not each.role.optional}
        known = {each.name: each.shape for each in found.tensors}
        wrong = {name: saved.get(name) for name in needed if saved.get(name) != needed[name]}
        wrong |= {name: saved[name] for name in saved if known.get(name) != saved[name]}
        learned = (each for each in found.tensors if each.role is Role.PARAMETER)
        assert found.parameters == sum(each.elements for each in learned)
        assert found.parameters == found.modules[""].parameters
        assert evaluate(found.formula, found.legend) == found.parameters
        assert len({each.name for each in found.tensors}) == len(found.tensors)
        wrongs.append(wrong)
    assert {} in wrongs, wrongs[0]


def check(base: str, method: str, **options) -> None:
    config, saved = made(base, method, **options)
    assert_expected(base, config, saved)


@st.composite
def loras(draw):
    base = draw(st.sampled_from(sorted(BASES)))
    ends = BASES[base][3]
    chosen = draw(st.lists(st.sampled_from(ends), min_size=1, max_size=4, unique=True))
    ranks = st.dictionaries(
        st.sampled_from([*ends, "layers.0.*q_proj", "layer.1.*", ".*proj"]), st.integers(1, 5)
    )
    options = {
        "r": draw(st.integers(1, 5)),
        "target_modules": chosen,
        # Saving sorts it, and of two keys that fit the first counts: unsorted, peft itself would
        # not load what it saved.
        "rank_pattern": dict(sorted(draw(ranks).items())),
        "bias": draw(st.sampled_from(["none", "all", "lora_only"])),
        "use_dora": draw(st.booleans()),
        "use_rslora": draw(st.booleans()),
        "lora_bias": draw(st.booleans()),
        "exclude_modules": draw(
            st.sampled_from([None, ["0.attn.c_attn"], ["query"], r".*\.1\..*"])
        ),
        "modules_to_save": draw(
            st.sampled_from([None, ["lm_head"], ["norm"], ["classifier"], ["ln_f", "embed_tokens"]])
        ),
    }
    if draw(st.booleans()):
        options["layers_to_transform"] = draw(st.sampled_from([0, [1], [0, 1]]))
        options["layers_pattern"] = draw(st.sampled_from([None, "layers", ["h", "layer"]]))
    elif draw(st.booleans()):
        ends = "|".join(chosen)
        options["target_modules"] = draw(
            st.sampled_from([rf".*\.({ends})", rf".*[^a]\.(?:{ends})$", rf"(?!.*\.1\.).*({ends})"])
        )
    return base, options


@SLOW
@given(case=loras())
def test_any_lora_is_as_peft_saves_it(case):
    base, options = case
    try:
        config, saved = made(base, "LoraConfig", **options)
    except RefusedError:
        reject()
    assert_expected(base, config, saved)


METHODS = [
    ("LoraConfig", {"r": 3}),
    ("LoraConfig", {"r": 3, "target_modules": "all-linear"}),
    ("LoraConfig", {"r": 3, "trainable_token_indices": [1, 2, 4]}),
    ("IA3Config", {"feedforward_modules": []}),
    ("AdaLoraConfig", {"init_r": 3, "target_r": 2, "total_step": 10}),
    ("VeraConfig", {"r": 3}),
    ("VeraConfig", {"r": 3, "save_projection": False}),
    ("LoHaConfig", {"r": 3, "rank_pattern": {"q_proj": 2}}),
    ("FourierFTConfig", {"n_frequency": 5}),
    ("BOFTConfig", {"boft_block_size": 2}),
    ("BOFTConfig", {"boft_block_size": 0, "boft_block_num": 2}),
    ("OFTConfig", {"oft_block_size": 4}),
    ("OFTConfig", {"oft_block_size": 0, "r": 2, "block_share": True}),
    ("LoKrConfig", {"r": 1, "rank_pattern": {"q_proj": 2}}),
    ("LoKrConfig", {"r": 1, "decompose_both": True, "decompose_factor": 3}),
    ("HRAConfig", {"r": 2}),
    ("RandLoraConfig", {"r": 3}),
    ("RandLoraConfig", {"r": 3, "save_projection": False}),
    ("MissConfig", {"r": 2}),
    ("MissConfig", {"r": 2, "init_weights": "bat"}),
    ("MissConfig", {"r": 2, "init_weights": "mini", "mini_r": 2}),
]


@pytest.mark.parametrize(("way", "base"), one_in(3, product(METHODS, sorted(BASES))))
def test_every_method_is_as_peft_saves_it(way, base):
    method, options = way
    ends = BASES[base][3]
    target = options.get("target_modules", list(ends[:2]))
    try:
        check(base, method, **{**options, "target_modules": target})
    except RefusedError as error:
        pytest.skip(f"peft: {error}")


PROMPTS = [
    ("PromptTuningConfig", {}),
    ("PrefixTuningConfig", {}),
    ("PrefixTuningConfig", {"prefix_projection": True, "encoder_hidden_size": 6}),
    ("PromptEncoderConfig", {"encoder_hidden_size": 6}),
    (
        "PromptEncoderConfig",
        {"encoder_hidden_size": 6, "encoder_reparameterization_type": "LSTM"},
    ),
    ("MultitaskPromptTuningConfig", {"num_tasks": 3, "num_ranks": 2}),
]
PROMPTED = ("bert", "gpt2", "llama", "qwen2", "t5", "gpt_neox", "roberta")


@pytest.mark.parametrize(("way", "base"), one_in(2, product(PROMPTS, PROMPTED)))
def test_every_prompt_is_as_peft_saves_it(way, base):
    method, options = way
    try:
        check(base, method, num_virtual_tokens=4, **options)
    except RefusedError as error:
        pytest.skip(f"peft: {error}")


@pytest.mark.parametrize(
    ("base", "method", "options"),
    [
        ("llama", "LNTuningConfig", {}),
        ("gpt2", "LNTuningConfig", {"target_modules": ["ln_1", "ln_f"]}),
        ("llama", "TrainableTokensConfig", {"token_indices": [1, 2]}),
        ("gpt2", "TrainableTokensConfig", {"token_indices": [7], "target_modules": ["wte"]}),
        (
            "gpt2",
            "IA3Config",
            {"target_modules": ["c_attn", "mlp.c_proj"]} | {"feedforward_modules": ["mlp.c_proj"]},
        ),
        ("vit", "IA3Config", {"target_modules": ["projection"], "feedforward_modules": []}),
        ("vit", "IA3Config", {"target_modules": r".*fc\d", "feedforward_modules": ".*fc2"}),
        (
            "llama",
            "LoraConfig",
            {
                "target_modules": ["q_proj"],
                "trainable_token_indices": {"lm_head": [1], "embed_tokens": [1, 2]},
            },
        ),
        (
            "qwen2",
            "LoraConfig",
            {"target_modules": ["q_proj"], "modules_to_save": ["lm_head", "embed_tokens"]},
        ),
        ("mixtral", "LoraConfig", {"target_modules": ["q_proj", "w1", "w2", "w3"]}),
        (
            "mixtral",
            "LoraConfig",
            {"target_modules": [], "target_parameters": ["mlp.experts.down_proj"]},
        ),
        (
            "gpt_oss",
            "LoraConfig",
            {
                "target_modules": ["q_proj"],
                "target_parameters": ["experts.gate_up_proj", "experts.down_proj"],
            },
        ),
        (
            "gpt_oss",
            "LoraConfig",
            {
                "target_modules": ["q_proj"],
                "target_parameters": ["0.mlp.experts.gate_up_proj"],
                "rank_pattern": {"experts.gate_up_proj": 5},
            },
        ),
    ],
)
def test_these_too(base, method, options):
    check(base, method, **options)


def test_what_training_has_left_of_adalora_is_what_rank_pattern_marks():
    config, saved = made(
        "llama", "AdaLoraConfig", init_r=3, target_r=2, total_step=9, target_modules=["q_proj"]
    )
    name = "model.layers.0.self_attn.q_proj"
    kept = {f"{name}.lora_E": [True, False, False]}
    values = json.loads(config) | {"rank_pattern": kept}
    below = f"base_model.model.{name}"
    cut = {f"{below}.lora_A": (1, 8), f"{below}.lora_B": (8, 1), f"{below}.lora_E": (1, 1)}
    assert cut.keys() <= saved.keys()
    assert_expected("llama", json.dumps(values).encode(), saved | cut)
