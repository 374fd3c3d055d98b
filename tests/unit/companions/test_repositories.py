"""What is said of the files beside the weights, and of which repositories nothing is."""

import json
import tempfile
from pathlib import Path

import pytest
from msgspec.structs import replace

pytest.importorskip("transformers", reason="writes the repositories")
import rebuild_special_ids
from support.builders import safetensors_bytes
from support.examples import each_night
from support.repository_bench import repository_faults, with_file, written_repository
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from auditor.audit.options import Options
from auditor.audit.pipeline import audit, examine
from auditor.checkpoint.snapshot_reader import load
from auditor.checkpoint.snapshot_writer import dump
from auditor.companions.companion_files import OF_HUB, companions_of, planned
from auditor.companions.generation import refusals
from auditor.findings import is_of_repository

FAMILIES = ["BertForMaskedLM", "LlamaForCausalLM", "T5ForConditionalGeneration", "GPT2LMHeadModel"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("repositories")


def said(snapshot):
    report = examine(snapshot, Options(requested="it"))
    return [one.kind for one in report.findings if is_of_repository(one)]


@pytest.mark.parametrize("name", FAMILIES)
def test_a_sound_repository_has_no_finding_and_a_planted_fault_its_own(name, place):
    snapshot = written_repository(name, place)
    assert examine(snapshot, Options(requested=name)).verdict == "clean"
    for fault in repository_faults(name, snapshot):
        report = examine(fault.snapshot, Options(requested=name))
        again = load(dump(fault.snapshot), "it.json")
        assert again.companions == fault.snapshot.companions
        assert examine(again, Options(requested=name)).findings == report.findings
        assert [one.cause for one in report.diagnosis] == [fault.cause], fault.name
        assert fault.cause in [one.kind for one in report.findings]


def test_an_older_snapshot_is_read_without_companions(place):
    snapshot = replace(written_repository("BertForMaskedLM", place), companions=None)
    document = json.loads(dump(snapshot))
    assert "companions" not in document
    assert load(dump(snapshot), "it.json").companions is None


NORMAL = [
    ("generation_config.json", b'{"eos_token_id": [2, 60, 61]}'),  # a list that has more
    ("generation_config.json", b'{"eos_token_id": 2, "pad_token_id": 0}'),
    ("tokenizer_config.json", b'{"eos_token": "</s>", "added_tokens_decoder": {}}'),
    ("added_tokens.json", b'{"<a>": 32000}'),  # loading gives it the next free id
    ("processor_config.json", b"{}"),
    ("special_tokens_map.json", b'{"eos_token": {"content": "</s>"}}'),
]


def test_what_is_normal_is_no_finding(place):
    snapshot = written_repository("LlamaForCausalLM", place)
    for file, content in NORMAL:
        assert said(with_file(snapshot, file, content)) == [], file


def test_an_unreadable_file_is_reported_without_a_finding(place):
    snapshot = with_file(
        written_repository("LlamaForCausalLM", place), "generation_config.json", b"<<<<<<< HEAD"
    )
    report = examine(snapshot, Options(requested="it"))
    assert said(snapshot) == []
    assert any(line.startswith("generation_config.json: ") for line in report.unchecked)


def test_without_companions_nothing_is_reported_about_them(place):
    folder = place / "LlamaForCausalLM-repository"
    written_repository("LlamaForCausalLM", place)
    (folder / "chat_template.jinja").write_text("{% if %}")
    assert audit(str(folder)).verdict == "findings"
    assert audit(str(folder), companions=False).verdict == "clean"
    (folder / "chat_template.jinja").write_text("{{ messages }}")


# --- what is asked of the Hub ------------------------------------------------------------------

SIZES = {
    "tokenizer.json": 9_000_000,
    "tokenizer_config.json": 50_000,
    "generation_config.json": 200,
    "chat_template.jinja": 4_000,
    "special_tokens_map.json": 300,
    "tokenizer.model": 500_000,
}


def test_three_requests_and_half_a_megabyte_are_the_most(subtests):
    for names in [
        ("tokenizer.json", "tokenizer_config.json"),
        tuple(SIZES),
        ("tokenizer.model", "generation_config.json"),
        ("vocab.txt", "tokenizer_config.json", "tokenizer.json"),
    ]:
        with subtests.test(names=names):
            plans = list(planned(companions_of(names), {**SIZES, "vocab.txt": 231_508}, OF_HUB))
            spans = [span for plan in plans for span in plan.spans]
            assert {plan.name for plan in plans} == set(names)
            assert len(spans) <= 3
            assert sum(span.length for span in spans) <= 512 * 1024
            assert all(plan.spans or plan.unread for plan in plans)


def test_of_a_folder_two_vocabularies_are_read_and_small_settings():
    files = ["tokenizer.json", "tekken.json", "vocab.json", "vocab.txt", "added_tokens.json"]
    sizes = dict.fromkeys((*files, "1_Pooling/config.json"), 4_000_000)
    plans = {plan.name: plan for plan in planned(companions_of(sizes), sizes, None)}
    read = {name for name, plan in plans.items() if plan.spans}
    assert read == {"tokenizer.json", "tekken.json", "added_tokens.json"}
    assert all(plan.unread for name, plan in plans.items() if name not in read)


def test_a_folder_is_read_up_to_a_bound():
    sizes = {"tokenizer.json": 39 * 2**20, **dict.fromkeys(("vocab.txt", "spm.model"), 30 * 2**20)}
    plans = [*planned(companions_of(sizes), sizes, None)]
    assert sum(span.length for plan in plans for span in plan.spans) <= 48 * 2**20
    assert {plan.name for plan in plans if plan.spans} == {"tokenizer.json"}


def test_a_model_on_the_hub_costs_three_requests_more(at_hub, place):
    folder = place / "LlamaForCausalLM-repository"
    written_repository("LlamaForCausalLM", place)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    files["added_tokens.json"] = b'{"<x>": 96}'
    at_hub.add("org/name", files)
    without = audit("org/name", companions=False)
    first = len(at_hub.log)
    report = audit("org/name")
    beside = [one.path for one in at_hub.log[first:] if "/resolve/" in one.path]
    plain = [one.path for one in at_hub.log[:first] if "/resolve/" in one.path]
    assert without.verdict == report.verdict == "clean"
    assert len(beside) - len(plain) == 3
    assert any("added_tokens.json" in line for line in report.unchecked)


def test_a_fault_is_found_over_the_hub(at_hub):
    config = {"model_type": "bert", "architectures": ["BertModel"]}
    weights = safetensors_bytes({"embeddings.word_embeddings.weight": ("F32", (8, 4))})
    tokens = json.dumps({"added_tokens": [{"id": 8, "content": "<x>"}], "model": {}}).encode()
    files = {"config.json": json.dumps(config).encode(), "model.safetensors": weights}
    at_hub.add("org/name", {**files, "tokenizer.json": tokens})
    report = audit("org/name")
    found = next(one for one in report.findings if one.kind == "token-beyond-embedding")
    assert (found.ids, found.rows, found.rows_of) == ((8,), 8, "embeddings.word_embeddings.weight")


# --- generation configs --------------------------------------------------------------------------


SETTINGS = [
    {},
    {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 20},
    {"temperature": 0.9, "top_p": 0.6},
    {"do_sample": False, "top_k": 50},
    {"num_beams": 4, "early_stopping": True, "length_penalty": 2.0},
    {"early_stopping": True},
    {"length_penalty": 2.0},
    {"early_stopping": "soon"},
    {"num_return_sequences": 2},
    {"num_return_sequences": 4, "num_beams": 2},
    {"max_new_tokens": 0},
    {"pad_token_id": -1},
    {"cache_implementation": "static"},
    {"cache_implementation": "none"},
    {"use_cache": False, "cache_implementation": "static"},
    {"output_scores": True},
    {"output_scores": True, "return_dict_in_generate": True},
    {"suppress_tokens": [1, 2], "forced_eos_token_id": 2},
    {"min_p": 0.1},
    {"typical_p": 0.5},
    {"epsilon_cutoff": 0.1},
    {"streamer": 1},
    {"assistant_ensemble_weight": 1.0},
]


def test_what_transformers_refuses_to_save_is_what_is_refused():
    for values in SETTINGS:
        try:
            GenerationConfig(**values).validate(strict=True)
            refused = False
        except ValueError:
            refused = True
        assert bool(refusals(values)) == refused, values


@each_night
def test_special_ids_of_config_classes_are_those_of_the_library():
    assert json.loads(rebuild_special_ids.PLACE.read_text()) == rebuild_special_ids.special_ids()


def test_a_generation_config_over_which_loading_fails_is_an_error(subtests, tmp_path):
    for content, fails in [
        ("[]", "a list"),
        ('{"pad_token_id": [0]}', "pad_token_id is [0]"),
        ('{"suppress_tokens": 3, "forced_eos_token_id": 2}', "a value, of a type"),
        ("{", None),  # transformers goes on without it
        ('{"eos_token_id": [[2]]}', None),
    ]:
        with subtests.test(content=content, fails=fails):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            folder = place / "model"
            sizes = {"hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 2}
            LlamaForCausalLM(
                LlamaConfig(vocab_size=8, num_hidden_layers=1, **sizes)
            ).save_pretrained(folder)
            (folder / "generation_config.json").write_text(content)
            if fails is None:
                LlamaForCausalLM.from_pretrained(folder)
            else:
                with pytest.raises(TypeError):
                    LlamaForCausalLM.from_pretrained(folder)
            bad = [one for one in audit(str(folder)).findings if one.kind == "bad-config"]
            assert [one.file for one in bad] == ["generation_config.json"] * (fails is not None)
            assert all(str(fails) in one.reason for one in bad)
