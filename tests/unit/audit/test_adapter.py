"""Adapters from end to end: their own files, and the config of the base that they name."""

import json
import re
from pathlib import Path

import pytest
from huggingface_hub import constants
from support.builders import safetensors_bytes

import auditor
from auditor import Reason, Report, Unaudited
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.snapshot_reader import load
from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader import fetch
from auditor.reconciler.findings import (
    BadConfig,
    Mismatched,
    Missing,
    OtherWeights,
    Unexpected,
    Unused,
)

CONFIG, FILE, WEIGHTS = "config.json", "adapter_config.json", "adapter_model.safetensors"
GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_embd": 8,
    "n_layer": 2,
    "n_head": 2,
    "vocab_size": 40,
    "n_positions": 10,
}
BERT = {
    "architectures": ["BertForMaskedLM"],
    "model_type": "bert",
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 40,
    "intermediate_size": 12,
    "max_position_embeddings": 10,
}
LORA = {
    "peft_type": "LORA",
    "task_type": "CAUSAL_LM",
    "base_model_name_or_path": "org/base",
    "r": 2,
    "target_modules": ["c_attn"],
    "fan_in_fan_out": True,
}
BELOW = "base_model.model.transformer.h"
# (in, out) is (8, 24) for queries, keys and values in one: A is (2, 8) and B (24, 2).
TENSORS = {
    f"{BELOW}.{layer}.attn.c_attn.lora_{side}.weight": ("F32", shape)
    for layer in (0, 1)
    for side, shape in (("A", (2, 8)), ("B", (24, 2)))
}
OWN = 128  # 2 layers of r * (in + out) = 2 * (8 + 24)
# 12 D^2 + 13 D a layer, a row for each word and place, and a norm, for D = 8.
WHOLE = 2 * (12 * 8 * 8 + 13 * 8) + (40 + 10) * 8 + 2 * 8


def coded(value: object) -> bytes:
    return json.dumps(value).encode()


def files(settings: object = LORA, tensors=TENSORS) -> dict[str, bytes]:
    content = settings if isinstance(settings, bytes) else coded(settings)
    return {FILE: content, WEIGHTS: safetensors_bytes(tensors)}


def folder_of(path: Path, contents: dict[str, bytes]) -> str:
    path.mkdir(exist_ok=True)
    for name, content in contents.items():
        (path / name).write_bytes(content)
    return str(path)


def kinds(report: Report) -> set[type]:
    return {type(finding) for finding in report.findings}


def clean(outcome: Report | Unaudited) -> Report:
    assert isinstance(outcome, Report), outcome
    assert (outcome.verdict, outcome.residual) == ("clean", 0), outcome.findings
    return outcome


# --- clean ones -------------------------------------------------------------------------------


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
    assert report.fetched.requests == len(at_hub.log) == 6  # of the header two: it is redirected


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


def test_a_snapshot_of_an_adapter_holds_all_that_its_audit_needs(at_hub):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    at_hub.add("org/adapter", files())
    snapshot = fetch("org/adapter")
    kept = load(dump(snapshot), "snapshot.json")
    assert kept.base == snapshot.base
    report = clean(auditor.audit("org/adapter"))
    again = clean(examine(kept, Options(requested="org/adapter")))
    assert (again.expected, again.modules) == (report.expected, report.modules)
    assert again.notes == report.notes


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


def test_a_prompt_is_what_its_own_settings_say(at_hub, tmp_path):
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


def test_a_base_with_more_words_is_stored_beside_and_not_missed(at_hub, tmp_path):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    longer = {"base_model.model.transformer.wte.weight": ("F32", (41, 8))}
    report = clean(auditor.audit(folder_of(tmp_path / "a", files(tensors=TENSORS | longer))))
    assert [finding.parameters for finding in report.findings if isinstance(finding, Unused)] == [
        328
    ]


def test_explain_says_what_an_adapter_would_hold(at_hub):
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


def test_an_adapter_beside_a_whole_model_is_no_part_of_it(at_hub):
    whole_model = {CONFIG: coded(GPT2), "model.safetensors": safetensors_bytes({})}
    at_hub.add("org/both", {**files(), **whole_model})
    report = auditor.audit("org/both")
    assert report.target == "GPT2LMHeadModel"
    assert [one.files for one in report.findings if isinstance(one, OtherWeights)] == [(WEIGHTS,)]


def test_the_names_that_modules_had_in_transformers_4_are_as_good(at_hub, tmp_path):
    vit = {"model_type": "vit", "architectures": ["ViTForImageClassification"]}
    vit |= {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    vit |= {"intermediate_size": 12, "image_size": 8, "patch_size": 4}
    at_hub.add("org/base", {CONFIG: coded(vit)})
    settings = {**LORA, "task_type": None, "target_modules": ["query", "q_proj"]}
    for number, path in enumerate(
        ("encoder.layer.0.attention.attention.query", "layers.0.attention.q_proj")
    ):
        tensors = {
            f"base_model.model.vit.{path}.lora_A.weight": ("F32", (2, 8)),
            f"base_model.model.vit.{path}.lora_B.weight": ("F32", (8, 2)),
        }
        clean(auditor.audit(folder_of(tmp_path / str(number), files(settings, tensors))))


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
def test_a_base_without_a_closed_form_is_asked_of_the_oracle(at_hub, tmp_path):
    pytest.importorskip("transformers", reason="the oracle")
    biogpt = {"model_type": "biogpt", "architectures": ["BioGptForCausalLM"], "hidden_size": 8}
    biogpt |= {"num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 40}
    biogpt |= {"intermediate_size": 12, "max_position_embeddings": 10}
    at_hub.add("org/base", {CONFIG: coded(biogpt)})
    below = "base_model.model.biogpt"
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


# --- planted faults ---------------------------------------------------------------------------

FIRST = f"{BELOW}.0.attn.c_attn.lora_A.weight"


@pytest.mark.parametrize(
    ("change", "kind", "names"),
    [
        ({FIRST: None}, Missing, {FIRST}),
        (
            {f"{BELOW}.0.mlp.c_fc.lora_A.weight": ("F32", (2, 8))},
            Unexpected,
            {f"{BELOW}.0.mlp.c_fc.lora_A.weight"},
        ),
        ({FIRST: ("F32", (8, 2))}, Mismatched, {FIRST}),
        ({FIRST: ("F32", (4, 8))}, Mismatched, {FIRST}),
        ({FIRST: ("F32", (0,))}, Mismatched, {FIRST}),  # what DeepSpeed leaves of a partition
    ],
)
def test_a_planted_fault_is_found_and_explained(at_hub, tmp_path, change, kind, names):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    tensors = {name: what for name, what in (TENSORS | change).items() if what}
    report = auditor.audit(folder_of(tmp_path / "a", files(tensors=tensors)))
    assert isinstance(report, Report)
    assert kinds(report) == {kind}
    assert {name for finding in report.findings for name in finding.names} == names
    assert (report.verdict, report.residual) == ("findings", 0)


def test_settings_of_another_rank_than_the_file_are_found(at_hub, tmp_path):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    report = auditor.audit(folder_of(tmp_path / "a", files({**LORA, "r": 4})))
    assert kinds(report) == {Mismatched}
    assert {name for finding in report.findings for name in finding.names} == set(TENSORS)
    assert report.residual == 0


def test_another_base_than_the_right_one_is_found(at_hub, tmp_path):
    at_hub.add("org/base", {CONFIG: coded({**GPT2, "n_embd": 16})})
    report = auditor.audit(folder_of(tmp_path / "a", files()))
    assert (kinds(report), report.residual) == ({Mismatched}, 0)


# --- bases that are not to be had -------------------------------------------------------------


@pytest.mark.parametrize(
    ("named", "reason", "why"),
    [
        ("org/absent", Reason.NOT_FOUND, "org/absent"),
        ("org/gated", Reason.GATED, "org/gated"),
        ("org/adapter", Reason.NO_CONFIG, "it is not a whole model itself"),
        ("../../etc/passwd", Reason.NOT_FOUND, "no Hub id"),
        ("/etc/passwd", Reason.NOT_FOUND, "no Hub id"),
        ("~/model", Reason.NOT_FOUND, "no Hub id"),
        ("http://127.0.0.1/x", Reason.NOT_FOUND, "no Hub id"),
        ("org/broken", Reason.UNREADABLE, "is broken"),
        ("org/odd", Reason.UNREADABLE, "no base can be built"),
        ("org/labels", Reason.UNREADABLE, "num_labels is the string '2'"),
        ("org/unknown", Reason.UNKNOWN_ARCHITECTURE, "the base of this adapter"),
        (None, Reason.NO_CONFIG, "names no base model"),
        ("", Reason.NO_CONFIG, "names no base model"),
    ],
)
def test_an_adapter_without_its_base_is_tallied_and_not_audited(at_hub, named, reason, why):
    at_hub.add("org/gated", {CONFIG: coded(GPT2)}, gated="manual")
    at_hub.add("org/broken", {CONFIG: b"{"})
    at_hub.add("org/odd", {CONFIG: coded({**GPT2, "n_embd": "8"})})
    at_hub.add("org/labels", {CONFIG: coded({**GPT2, "num_labels": "2"})})
    at_hub.add("org/unknown", {CONFIG: coded({"architectures": ["NoneForCausalLM"]})})
    at_hub.add("org/adapter", files({**LORA, "base_model_name_or_path": named}))
    outcome = auditor.audit("org/adapter")
    assert isinstance(outcome, Unaudited)
    assert outcome.reason is reason
    assert why in outcome.detail
    assert "\n" not in outcome.detail
    assert outcome.observed.parameters == OWN


def test_an_adapter_of_the_hub_names_no_folder_of_this_machine(at_hub, tmp_path, monkeypatch):
    folder_of(tmp_path / "base", {CONFIG: coded(GPT2)})
    monkeypatch.chdir(tmp_path)
    for number, named in enumerate(("base", str(tmp_path / "base"), "./base")):
        adapter = f"org/adapter-{number}"
        at_hub.add(adapter, files({**LORA, "base_model_name_or_path": named}))
        outcome = auditor.audit(adapter)
        assert isinstance(outcome, Unaudited)
        assert outcome.reason is Reason.NOT_FOUND


def test_a_folder_names_no_file_as_its_base(tmp_path, at_hub):
    secret = tmp_path / "secret.json"
    secret.write_bytes(b"root:x:0:0")
    named = {**LORA, "base_model_name_or_path": str(secret)}
    outcome = auditor.audit(folder_of(tmp_path / "a", files(named)))
    assert isinstance(outcome, Unaudited)
    assert "root:x" not in outcome.detail
    assert not at_hub.log


# --- hostile settings -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"r": 0}, "r is 0"),
        ({"r": -8}, "r is -8"),
        ({"r": "8"}, "r is the string '8'"),
        ({"r": None}, "r is null"),
        ({"r": 10**15}, "r is 1000000000000000"),
        ({"target_modules": 7}, "target_modules is 7"),
        ({"target_modules": ["c_attn", 7]}, "an item of target_modules is 7"),
        ({"target_modules": ["nothing"]}, "chooses no module of GPT2LMHeadModel"),
        ({"target_modules": ["x" * 9999]}, "chooses no module of GPT2LMHeadModel"),
        ({"target_modules": "nothing"}, "chooses no module of GPT2LMHeadModel"),
        ({"rank_pattern": {"c_attn": "2"}}, "the rank of 'c_attn' in rank_pattern"),
        ({"rank_pattern": [1]}, "rank_pattern is a list"),
        ({"layers_to_transform": ["0"]}, "layers_to_transform is the string '0'"),
        ({"modules_to_save": [""]}, "an empty name"),
        ({"modules_to_save": [f"m{n}" for n in range(2000)]}, "modules_to_save has 2,000 names"),
        ({"bias": "some"}, "bias is the string 'some'"),
        ({"bias": None}, "bias is null"),
        ({"use_dora": "yes"}, "use_dora is the string 'yes'"),
        ({"peft_type": 1}, "peft_type is 1"),
        ({"peft_type": None}, "names no peft_type"),
        ({"base_model_name_or_path": ["a"]}, "base_model_name_or_path is a list"),
        ({"revision": 5}, "revision is 5"),
        ({"auto_mapping": []}, "auto_mapping is a list"),
        ({"target_parameters": ["none"], "target_modules": None}, "chooses nothing of"),
        ({"target_parameters": [], "target_modules": None}, "names anything"),
        ({"trainable_token_indices": ["1"]}, "trainable_token_indices is the string '1'"),
        ({"trainable_token_indices": {"none": [1]}}, "no such module"),
    ],
)
def test_wrong_settings_are_a_finding_that_names_the_key(at_hub, tmp_path, change, why):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    report = auditor.audit(folder_of(tmp_path / "a", files({**LORA, **change})))
    assert isinstance(report, Report), report
    (bad,) = (finding for finding in report.findings if isinstance(finding, BadConfig))
    assert bad.file == FILE
    assert why in bad.reason
    assert "\n" not in bad.reason
    assert len(bad.reason) < 400
    assert report.observed.parameters == OWN


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"target_modules": "(a*)*" * 900}, "is not run"),
        ({"target_modules": ".*" * 300 + "x"}, "not run: it takes more than"),
        ({"target_modules": r"(c_attn)\1"}, r"'(c_attn)\\1', which is not run"),
        ({"exclude_modules": "(?<=a)b"}, "exclude_modules is the expression"),
        ({"rank_pattern": {"(?<=a)b": 2}}, "rank_pattern is the expression"),
        ({"modules_to_save": ["(a|b)*"]}, "modules_to_save names '(a|b)*'"),
        ({"layers_to_transform": [0], "layers_pattern": ["(a*)*"]}, "layers_pattern"),
        ({"target_modules": ["attn"]}, "which is not a layer"),
        ({"target_modules": ["ln_1"]}, "of a kind that is not known"),
        ({"target_modules": None}, "target_modules is null"),
        ({"layer_replication": [[0, 1]]}, "layer_replication"),
        ({"use_qalora": True}, "use_qalora"),
        ({"enable_lora": [True, False, True]}, "enable_lora"),
        ({"peft_type": "OFT"}, "peft_type is 'OFT'"),
        ({"peft_type": "<script>"}, "peft_type is '<SCRIPT>'"),
    ],
)
def test_what_is_not_known_is_said_to_be_not_checked(at_hub, tmp_path, change, why):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    outcome = auditor.audit(folder_of(tmp_path / "a", files({**LORA, **change})))
    assert isinstance(outcome, Unaudited), outcome
    assert outcome.reason is Reason.UNKNOWN_LAYOUT
    assert why in outcome.detail
    assert outcome.detail.startswith("not checked: ")
    assert outcome.observed.parameters == OWN


def test_a_rank_of_a_million_millions_allocates_nothing(at_hub, tmp_path):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    report = auditor.audit(folder_of(tmp_path / "a", files({**LORA, "r": 10**12})))
    assert (kinds(report), report.residual) == ({Mismatched}, 0)
    assert report.expected.parameters == 10**12 * 2 * (8 + 24)


@pytest.mark.slow
def test_a_million_targets_are_refused_and_a_hundred_thousand_are_looked_up(at_hub, tmp_path):
    at_hub.add("org/base", {CONFIG: coded(GPT2)})
    million = coded({**LORA, "target_modules": [f"m{n}" for n in range(1_000_000)]})
    report = auditor.audit(folder_of(tmp_path / "a", files(million)))
    (bad,) = (finding for finding in report.findings if isinstance(finding, BadConfig))
    assert re.search(r"holds some 1,000,\d+ JSON values", bad.reason)
    many = {**LORA, "target_modules": ["c_attn", *(f"m{n}" for n in range(100_000))]}
    clean(auditor.audit(folder_of(tmp_path / "b", files(many))))


def test_settings_that_are_no_json_are_a_finding(tmp_path, at_hub):
    report = auditor.audit(folder_of(tmp_path / "a", files(b'{"peft_type": ')))
    (bad,) = (finding for finding in report.findings if isinstance(finding, BadConfig))
    assert "is cut off" in bad.reason
    assert not at_hub.log
