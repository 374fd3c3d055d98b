"""PEFT loads an adapter on the base of its task exactly if its audit is clean."""

import json
import re
import tempfile
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from support.examples import one_in

from auditor import audit
from auditor.errors import Reason

peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")
pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]  # of libraries

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "vocab_size": 40,
    "intermediate_size": 24,
}
TEXT = {**SMALL, "num_key_value_heads": 1}
IMAGES = {key: value for key, value in SMALL.items() if key != "vocab_size"}
GEMMA = {
    "text_config": {**TEXT, "head_dim": 8},
    "vision_config": {**IMAGES, "image_size": 28, "patch_size": 14},
    "mm_tokens_per_image": 4,
}
QWEN_VL = {
    "text_config": {**TEXT, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}},
    "vision_config": {"depth": 1, "embed_dim": 16, "hidden_size": 16, "num_heads": 2},
}
CONFIGS = {
    "MllamaConfig": {
        "vision_config": {
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_global_layers": 1,
            "attention_heads": 2,
            "image_size": 32,
            "patch_size": 8,
            "vision_output_dim": 64,
            "intermediate_layers_indices": [0],
            "max_num_tiles": 2,
            "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1]],
        },
        "text_config": {
            "vocab_size": 320,
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "cross_attention_layers": [1],
            "pad_token_id": 0,
        },
    },
    "LlamaConfig": {**TEXT, "pad_token_id": 0},
    "Qwen2Config": {**TEXT, "tie_word_embeddings": True},
    "BertConfig": {**SMALL, "max_position_embeddings": 20},
    "RobertaConfig": {**SMALL, "max_position_embeddings": 20},
    "Gemma3Config": GEMMA,
    "Gemma3TextConfig": GEMMA["text_config"],
    "Qwen2VLConfig": QWEN_VL,
    "ViTConfig": {**IMAGES, "image_size": 8, "patch_size": 4},
    "T5Config": {"d_model": 16, "d_kv": 8, "num_heads": 2, "num_layers": 1, "d_ff": 24}
    | {"vocab_size": 40},
    "GPT2Config": {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 40, "n_positions": 20},
}
AUTO_CLASSES = {
    "CAUSAL_LM": "AutoModelForCausalLM",
    "SEQ_CLS": "AutoModelForSequenceClassification",
    "TOKEN_CLS": "AutoModelForTokenClassification",
    "SEQ_2_SEQ_LM": "AutoModelForSeq2SeqLM",
    "FEATURE_EXTRACTION": "AutoModel",
}
QUERIES = {"r": 2, "target_modules": ["q_proj", "v_proj"]}
OF_BERT = {"r": 2, "target_modules": ["query", "value"]}
STORED = {"save_embedding_layers": True}
PROMPT, SCALES = "PrefixTuningConfig", "IA3Config"
LLAMA, QWEN, BERT = "LlamaForCausalLM", "Qwen2ForCausalLM", "BertForMaskedLM"
GEMMA_TEXT, GEMMA_WHOLE = "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"


def model_of(name, rows):
    cls = getattr(transformers, name)
    model = cls(cls.config_class(**CONFIGS[cls.config_class.__name__]))
    if rows is not None:
        model.resize_token_embeddings(rows)
    return model


def saved(  # noqa: PLR0913 - a keyword for each thing that a trainer chooses
    folder: Path,
    base,
    trained,
    task,
    settings,
    *,
    method="LoraConfig",
    rows=None,
    storing=None,
    rename=(),
    then=None,
) -> Path:
    """Save a base, and an adapter that was trained on a model of its own."""
    model_of(base, None).save_pretrained(folder / "base")
    model = peft.get_peft_model(
        model_of(trained or base, rows), getattr(peft, method)(task_type=task, **settings)
    )
    model.save_pretrained(folder / "adapter", **(storing or {}))
    file, weights = (
        folder / "adapter/adapter_config.json",
        folder / "adapter/adapter_model.safetensors",
    )
    values = json.loads(file.read_text()) | {"base_model_name_or_path": str(folder / "base")}
    file.write_text(json.dumps(values | (then or {})))
    tensors = load_file(weights)
    for old, new in rename:
        tensors = {
            re.sub(old, new, name): tensor
            for name, tensor in tensors.items()
            if new or not re.search(old, name)
        }
    save_file(tensors, weights)
    return folder / "adapter"


def loads(folder: Path) -> bool:
    """Whether PEFT loads every tensor of the adapter, and needs no other."""
    values = json.loads((folder / "adapter_config.json").read_text())
    base = values["base_model_name_or_path"]
    config = json.loads(Path(base, "config.json").read_text())
    auto = getattr(transformers, AUTO_CLASSES.get(values["task_type"], config["architectures"][0]))
    try:
        model = auto.from_pretrained(base)
    except ValueError:  # no class of the task: the declared one
        model = getattr(transformers, config["architectures"][0]).from_pretrained(base)
    try:
        model = peft.PeftModel.from_pretrained(model, folder)
        stored = load_file(folder / "adapter_model.safetensors")
        result = peft.set_peft_model_state_dict(model, stored)
    except (RuntimeError, KeyError, ValueError):
        return False
    own = re.compile(r"lora_|ia3_|modules_to_save")
    prompt = "prompt_embeddings"  # PEFT loads it apart
    missing = [name for name in result.missing_keys if own.search(name)]
    return not missing and not [name for name in result.unexpected_keys if name != prompt]


SOUND = {
    "embeddings of the base": (LLAMA, None, "CAUSAL_LM", QUERIES, {"storing": STORED}),
    "embeddings of a tied base": (QWEN, None, "CAUSAL_LM", QUERIES, {"storing": STORED}),
    "embeddings with an adapter": (
        LLAMA, None, "CAUSAL_LM", {"r": 2, "target_modules": ["q_proj", "embed_tokens"]}, {},
    ),
    "embeddings beside IA3": (
        LLAMA, None, "CAUSAL_LM", {"target_modules": ["k_proj"], "feedforward_modules": []},
        {"method": SCALES, "storing": STORED},
    ),
    "embeddings beside a prompt": (
        "GPT2LMHeadModel", None, "CAUSAL_LM", {"num_virtual_tokens": 3},
        {"method": PROMPT, "storing": STORED},
    ),
    "saved modules": (
        LLAMA, None, "CAUSAL_LM", {**QUERIES, "modules_to_save": ["lm_head", "norm"]}, {},
    ),
    "saved modules that no setting names": (
        LLAMA, None, "CAUSAL_LM", {**QUERIES, "modules_to_save": ["norm"]},
        {"then": {"modules_to_save": None}},
    ),
    "biases that no setting names": (
        QWEN, None, "CAUSAL_LM", {**QUERIES, "bias": "lora_only"}, {"then": {"bias": "none"}},
    ),
    "all biases": (QWEN, None, "CAUSAL_LM", {**QUERIES, "bias": "all"}, {}),
    "DoRA with rank patterns": (
        LLAMA, None, "CAUSAL_LM", {**QUERIES, "use_dora": True, "rank_pattern": {"v_proj": 3}}, {},
    ),
    "a head that the base does not have": (
        BERT, "BertForSequenceClassification", "SEQ_CLS", OF_BERT, {},
    ),
    "a head for tokens": (
        "RobertaForMaskedLM", "RobertaForTokenClassification", "TOKEN_CLS", OF_BERT, {},
    ),
    "features": ("RobertaForMaskedLM", "RobertaModel", "FEATURE_EXTRACTION", OF_BERT, {}),
    "two towers": (
        "T5ForConditionalGeneration", None, "SEQ_2_SEQ_LM", {"r": 2, "target_modules": ["q"]}, {},
    ),
    "a tower for images": (GEMMA_WHOLE, None, "CAUSAL_LM", QUERIES, {}),
    "older names that PEFT translates": (
        GEMMA_WHOLE, None, "CAUSAL_LM", QUERIES,
        {"rename": [
            (r"model\.language_model\.", "language_model.model."),
            (r"model\.model\.vision_tower\.", "model.vision_tower.vision_model."),
        ]},
    ),
}  # fmt: skip
BROKEN = {
    "more words": (LLAMA, None, "CAUSAL_LM", QUERIES, {"rows": 44, "storing": STORED}),
    "fewer words": (LLAMA, None, "CAUSAL_LM", QUERIES, {"rows": 36, "storing": STORED}),
    "more words in saved modules": (
        LLAMA, None, "CAUSAL_LM", {**QUERIES, "modules_to_save": ["embed_tokens", "lm_head"]},
        {"rows": 44},
    ),
    "more words under an adapter": (
        LLAMA, None, "CAUSAL_LM", {"r": 2, "target_modules": ["embed_tokens"]}, {"rows": 44},
    ),
    "more words of an encoder": (
        "RobertaForMaskedLM", "RobertaModel", "FEATURE_EXTRACTION", OF_BERT,
        {"rows": 44, "storing": STORED},
    ),
    "the language model of a model with images": (
        GEMMA_WHOLE, GEMMA_TEXT, "CAUSAL_LM", QUERIES, {},
    ),
    "all layers of that language model": (
        GEMMA_WHOLE, GEMMA_TEXT, "CAUSAL_LM", {"r": 2, "target_modules": "all-linear"}, {},
    ),
    "a model with images for its language model": (
        GEMMA_TEXT, GEMMA_WHOLE, "CAUSAL_LM", QUERIES, {},
    ),
    "a model with a head for its encoder": (
        LLAMA, None, "CAUSAL_LM", QUERIES, {"then": {"task_type": "FEATURE_EXTRACTION"}},
    ),
    "older names": (
        "ViTForImageClassification", None, None, QUERIES,
        {"rename": [
            (r"layers\.(\d+)\.attention\.q_proj", r"encoder.layer.\1.attention.attention.query"),
            (r"layers\.(\d+)\.attention\.v_proj", r"encoder.layer.\1.attention.attention.value"),
        ], "then": {"target_modules": ["query", "value"]}},
    ),
    "older names of a part": (
        "Qwen2VLForConditionalGeneration", None, "CAUSAL_LM", QUERIES,
        {"rename": [(r"model\.language_model\.", "model.")]},
    ),
    "no head": (
        BERT, "BertForSequenceClassification", "SEQ_CLS", OF_BERT,
        {"rename": [("classifier", "")]},
    ),
}  # fmt: skip
CAUSES = {
    "resized-base": [name for name in BROKEN if " words" in name],
    "older-names": ["older names", "older names of a part"],
    "head-not-saved": ["no head"],
}


def test_an_adapter_that_peft_loads_is_clean(subtests, tmp_path):
    for name in one_in(2, SOUND):
        with subtests.test(name=name):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            *case, more = SOUND[name]
            folder = saved(place, *case, **more)
            assert loads(folder)
            report = audit(str(folder))
            assert (report.verdict, report.residual) == ("clean", 0), report.findings
            assert not [finding for finding in report.findings if finding.kind == "unused"]


def test_an_adapter_that_peft_does_not_load_has_one_error_with_its_cause(subtests, tmp_path):
    for name in one_in(2, BROKEN):
        with subtests.test(name=name):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            *case, more = BROKEN[name]
            folder = saved(place, *case, **more)
            assert not loads(folder)
            report = audit(str(folder))
            assert "error" in {finding.severity for finding in report.findings}
            [diagnosis] = report.diagnosis
            causes = [cause for cause, names in CAUSES.items() if name in names]
            assert [diagnosis.cause] == (causes or ["other-class"])
            alarms = [one for one in report.findings if one.severity in {"error", "warning"}]
            assert len(diagnosis.findings) == len(alarms)


def test_rows_that_the_base_does_not_have_are_an_error(tmp_path):
    settings = {**QUERIES, "trainable_token_indices": [41, 42]}
    folder = saved(tmp_path, QWEN, None, "CAUSAL_LM", settings, rows=44)
    with pytest.raises(IndexError, match="out of bounds"):
        loads(folder)
    [finding] = audit(str(folder)).findings
    assert finding.kind == "bad-config"
    assert "the base has 40 rows; resize the base to 43 rows" in finding.reason


def test_stored_embeddings_are_reported_to_replace_those_of_the_base(tmp_path):
    folder = saved(tmp_path, LLAMA, None, "CAUSAL_LM", QUERIES, storing=STORED)
    report = audit(str(folder))
    [note] = [note for note in report.notes if "replace the base's" in note]
    assert "model.embed_tokens.weight" in note
    assert report.expected.parameters == report.observed.parameters  # of which the share is


def test_the_rows_of_base_and_adapter_are_named_with_the_size_to_choose(tmp_path):
    folder = saved(tmp_path, LLAMA, None, "CAUSAL_LM", QUERIES, rows=44, storing=STORED)
    [diagnosis] = audit(str(folder)).diagnosis
    assert "the base has 40 rows, the adapter 44" in diagnosis.summary
    assert diagnosis.fix.startswith("resize the base to 44 first")


def test_an_adapter_is_not_clean_if_peft_may_not_translate_its_names(tmp_path):
    older = (
        (r"model\.model\.language_model\.", "model.language_model.model."),
        (r"model\.model\.vision_model\.", "model.vision_model."),
    )
    folder = saved(tmp_path, "MllamaForConditionalGeneration", None, None, QUERIES, rename=older)
    assert not loads(folder)
    outcome = audit(str(folder))
    assert outcome.reason is Reason.UNKNOWN_LAYOUT
    assert "it is not known which names PEFT translates" in outcome.detail
