"""Adapters from end to end: their own files, and the config of the base that they name."""

from pathlib import Path

import pytest
from huggingface_hub import constants
from support.builders import safetensors_bytes
from support.small_adapters import (
    BERT,
    CONFIG,
    FILE,
    GPT2,
    LORA,
    OWN,
    TENSORS,
    WEIGHTS,
    WHOLE,
    clean,
    coded,
    files,
    folder_of,
    kinds,
)

import auditor
from auditor import Reason, Unaudited
from auditor.findings import (
    Mismatched,
    OtherWeights,
)


def test_an_adapter_of_the_hub_is_audited_with_the_config_of_its_base(at_hub):
    base = at_hub.add("org/base", {CONFIG: coded(GPT2), "model.safetensors": b"never read"})
    sha = at_hub.add("org/adapter", files())
    report = clean(auditor.audit("org/adapter"))
    assert (report.target, report.model_type) == ("LoraModel of GPT2LMHeadModel", "gpt2")
    assert (report.commit, report.expected.parameters) == (sha, OWN)
    assert report.expected.formula == "2*r*(8 + 24)"
    assert (report.observed.files, report.observed.parameters) == (1, OWN)
    assert report.notes == (
        f"{OWN} of {WHOLE:,} parameters of org/base, {100 * OWN / WHOLE:.2f} %",
        f"the base is org/base at commit {base}: read from {at_hub.url}",
    )
    # Of the header two: it is redirected; of a plain model two in vain.
    assert report.fetched.requests == len(at_hub.log) == 8


def test_the_revision_of_the_base_is_the_one_that_the_adapter_names(at_hub):
    at_hub.add(
        "org/base", {CONFIG: coded({**GPT2, "n_embd": 16})}, refs={"v1": {CONFIG: coded(GPT2)}}
    )
    at_hub.add("org/adapter", files({**LORA, "revision": "v1"}))
    clean(auditor.audit("org/adapter"))


def test_a_folder_may_name_a_base_of_the_hub_or_a_folder(at_hub, tmp_path):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    clean(auditor.audit(folder_of(tmp_path / "one", files())))
    clean(auditor.audit(str(tmp_path / "one" / WEIGHTS)))
    beside = folder_of(tmp_path / "base", {CONFIG: coded(GPT2)})
    named = {**LORA, "base_model_name_or_path": beside}
    report = clean(auditor.audit(folder_of(tmp_path / "two", files(named))))
    assert report.fetched.requests == 0


def test_the_bundled_base_will_do_offline(tmp_path):
    settings = {
        "peft_type": "IA3",
        "task_type": "SEQ_CLS",
        "base_model_name_or_path": "google-bert/bert-base-uncased",
        "target_modules": ["key"],
        "feedforward_modules": [],
        "modules_to_save": ["classifier"],
    }
    tensors = {
        f"base_model.model.bert.encoder.layer.{layer}.attention.self.key.ia3_l": ("F32", (768, 1))
        for layer in range(12)
    }
    tensors |= {
        "base_model.model.classifier.weight": ("F32", (2, 768)),
        "base_model.model.classifier.bias": ("F32", (2,)),
    }
    report = clean(
        auditor.audit(folder_of(tmp_path / "ia3", files(settings, tensors)), source="bundled")
    )
    assert report.target == "IA3Model of BertForSequenceClassification"
    assert report.expected.parameters == 12 * 768 + 2 * 768 + 2


def test_a_cached_adapter_finds_its_base_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    for number, (name, contents) in enumerate(
        (("adapter", files()), ("base", {CONFIG: coded(GPT2)})), start=1
    ):
        commit = str(number) * 40
        place = tmp_path / f"models--org--{name}"
        (place / "refs").mkdir(parents=True)
        (place / "refs/main").write_text(commit)
        (place / "snapshots").mkdir()
        folder_of(place / "snapshots" / commit, contents)
    report = clean(auditor.audit("org/adapter", source="cache"))
    assert (report.source, report.commit) == ("cache", "1" * 40)
    assert f"the base is org/base at commit {'2' * 40}: " in report.notes[1]
    assert report.fetched.requests == 0


def test_a_prompt_follows_its_own_settings(at_hub, tmp_path):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    settings = {"peft_type": "PREFIX_TUNING", "task_type": "CAUSAL_LM", "num_virtual_tokens": 4}
    settings |= {"base_model_name_or_path": "org/base", "token_dim": 8, "num_layers": 2}
    tensors = {"prompt_embeddings": ("F32", (4, 2 * 2 * 8))}
    report = clean(auditor.audit(folder_of(tmp_path / "a", files(settings, tensors))))
    assert report.target == "PrefixEncoder of GPT2LMHeadModel"
    assert any(each.startswith("whether the prompt fits") for each in report.unchecked)


def test_the_number_of_labels_is_that_of_the_stored_head(at_hub, tmp_path):
    at_hub.add("org/base", {CONFIG: coded(BERT)})
    settings = {**LORA, "task_type": "SEQ_CLS", "target_modules": ["query"]}
    below = "base_model.model"
    query = f"{below}.bert.encoder.layer.0.attention.self.query"
    tensors = {
        f"{query}.lora_A.weight": ("F32", (2, 8)),
        f"{query}.lora_B.weight": ("F32", (8, 2)),
        f"{below}.classifier.weight": ("F32", (5, 8)),
        f"{below}.classifier.bias": ("F32", (5,)),
    }
    report = clean(auditor.audit(folder_of(tmp_path / "a", files(settings, tensors))))
    assert report.expected.parameters == 2 * 16 + 5 * 8 + 5
    assert "the number of labels: only the stored head says it" in report.unchecked
    torn = tensors | {f"{below}.classifier.bias": ("F32", (4,))}
    report = auditor.audit(folder_of(tmp_path / "b", files(settings, torn)))
    assert Mismatched in kinds(report)


def test_explain_shows_what_an_adapter_would_hold(at_hub):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    at_hub.add("org/adapter", files())
    outcome = auditor.explain("org/adapter")
    assert isinstance(outcome, Unaudited)
    assert (outcome.reason, outcome.expected.parameters) == (Reason.NO_WEIGHTS, OWN)
    at_hub.add("org/bert", {CONFIG: coded(BERT)})
    settings = {**LORA, "task_type": "SEQ_CLS", "target_modules": ["query"]}
    at_hub.add("org/head", files({**settings, "base_model_name_or_path": "org/bert"}))
    outcome = auditor.explain("org/head")
    assert outcome.target == "LoraModel of BertForSequenceClassification"
    assert outcome.expected.parameters == 2 * (8 + 8) + 2 * 8 + 2


@pytest.mark.slow
def test_a_torch_file_of_an_adapter_is_read_as_well(at_hub, tmp_path):
    torch = pytest.importorskip("torch", reason="writes torch files")
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    folder = folder_of(tmp_path / "a", {FILE: coded(LORA)})
    state = {name: torch.zeros(shape) for name, (_, shape) in TENSORS.items()}
    torch.save(state, Path(folder, "adapter_model.bin"))
    clean(auditor.audit(folder))


def test_an_adapter_next_to_a_complete_model_is_not_part_of_it(at_hub):
    whole_model = {CONFIG: coded(GPT2), "model.safetensors": safetensors_bytes({})}
    at_hub.add("org/both", {**files(), **whole_model})
    report = auditor.audit("org/both")
    assert report.target == "GPT2LMHeadModel"
    assert [one.files for one in report.findings if OtherWeights.describes(one)] == [(WEIGHTS,)]


def test_experts_have_an_adapter_each_or_one_for_all_of_a_layer(at_hub, tmp_path):
    mixtral = {"model_type": "mixtral", "architectures": ["MixtralForCausalLM"]}
    mixtral |= {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    mixtral |= {"num_key_value_heads": 2, "intermediate_size": 12, "vocab_size": 40}
    at_hub.add("org/base", {CONFIG: coded({**mixtral, "num_local_experts": 3})})
    each = {
        f"base_model.model.model.layers.0.block_sparse_moe.experts.{n}.w2.lora_{side}.weight": what
        for n in range(3)
        for side, what in (("A", ("F32", (2, 12))), ("B", ("F32", (8, 2))))
    }
    settings = {**LORA, "target_modules": ["w2"]}
    clean(auditor.audit(folder_of(tmp_path / "a", files(settings, each))))
    fused = {
        "base_model.model.model.layers.0.mlp.experts.lora_A.weight": ("F32", (6, 12)),
        "base_model.model.model.layers.0.mlp.experts.lora_B.weight": ("F32", (8, 6)),
    }
    settings = {**LORA, "target_modules": [], "target_parameters": ["experts.down_proj"]}
    clean(auditor.audit(folder_of(tmp_path / "b", files(settings, fused))))


def test_a_class_that_the_user_names_is_that_of_the_base(at_hub, tmp_path):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    tensors = {name.replace("transformer.", ""): what for name, what in TENSORS.items()}
    folder = folder_of(tmp_path / "a", files({**LORA, "task_type": "CAUSAL_LM"}, tensors))
    assert auditor.audit(folder).verdict == "findings"
    assert clean(auditor.audit(folder, target="GPT2Model")).target == "LoraModel of GPT2Model"
    unsaid = folder_of(tmp_path / "b", files({**LORA, "task_type": None}, tensors))
    assert clean(auditor.audit(unsaid)).target == "LoraModel of GPT2Model"


@pytest.mark.oracle
def test_a_base_outside_its_generated_form_is_built_by_the_oracle(at_hub, tmp_path):
    pytest.importorskip("transformers", reason="the oracle")
    xglm = {"model_type": "xglm", "architectures": ["XGLMForCausalLM"], "d_model": 8}
    xglm |= {"num_layers": 1, "attention_heads": 2, "vocab_size": 40}
    xglm |= {"ffn_dim": 12, "max_position_embeddings": 10, "activation_function": "prelu"}
    at_hub.add("org/base", {CONFIG: coded(xglm)})
    below = "base_model.model.model"
    tensors = {
        f"{below}.layers.0.self_attn.q_proj.lora_A.weight": ("F32", (2, 8)),
        f"{below}.layers.0.self_attn.q_proj.lora_B.weight": ("F32", (8, 2)),
        f"{below}.embed_tokens.lora_embedding_A": ("F32", (2, 40)),
        f"{below}.embed_tokens.lora_embedding_B": ("F32", (8, 2)),
    }
    settings = {**LORA, "target_modules": ["q_proj", "embed_tokens"]}
    report = clean(auditor.audit(folder_of(tmp_path / "a", files(settings, tensors))))
    assert report.expected.by == "oracle"
    assert "which layers of the base are embeddings: their names alone tell" in report.unchecked
