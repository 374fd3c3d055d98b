"""What the files beside the weights say, by the smallest of them."""

import json

import pytest
from msgspec.structs import replace

from auditor.analytic.config_classes import of_model_type
from auditor.companions.companion_files import CompanionFile, is_vocabulary, summary
from auditor.companions.reading import Companions
from auditor.reconciler.repository_rules.config_rules import (
    FLAT,
    contradiction_findings,
    key_findings,
)
from auditor.reconciler.repository_rules.of_files import file_findings
from auditor.reconciler.repository_rules.processors import library_processors
from auditor.reconciler.repository_rules.repository_case import RepositoryCase
from auditor.tensors import StoredTensor

GENERATION, CONFIG = "generation_config.json", "tokenizer_config.json"
PREPROCESSOR = "preprocessor_config.json"
BROKEN = "{{ a }"


def case_of(config=None, rows=10, target="LlamaForCausalLM", **files):
    """A model of so many rows, and files by their names."""
    config = {"model_type": "llama", **(config or {})}
    texts = {name: one if isinstance(one, str) else json.dumps(one) for name, one in files.items()}
    return RepositoryCase(
        names=frozenset(files),
        is_complete=True,
        config_file="config.json",
        config=config,
        kind=of_model_type(config["model_type"]),
        is_custom=False,
        target=target,
        stored=(StoredTensor("model.embed_tokens.weight", "F32", (rows, 4), 4 * rows, "", None),),
        expected=tuple,
        companions=Companions.of(companion(name, text.encode()) for name, text in texts.items()),
    )


def companion(name, content):
    return summary(name, content) if is_vocabulary(name) else CompanionFile(name, content)


def kinds(case):
    return [finding.kind for finding in file_findings(case)]


def test_an_end_beyond_the_embedding_is_one_fault():
    files = {GENERATION: {"eos_token_id": 2}}
    assert kinds(case_of({"eos_token_id": 10}, **files)) == ["special-id-beyond-vocabulary"]
    assert kinds(case_of({"eos_token_id": 9}, **files)) == ["eos-disagrees"]
    assert kinds(case_of({"eos_token_id": 2}, **files)) == []


@pytest.mark.parametrize(
    ("token", "config", "found"),
    [
        ("<image_soft_token>", {}, []),
        ("<image_soft_token>", {"vision_config": {}}, ["token-beyond-embedding"]),
        ("<more>", {}, ["token-beyond-embedding"]),
    ],
)
def test_a_text_model_needs_no_row_for_the_token_of_an_image(token, config, found):
    decoder = {"10": {"content": token}}
    assert kinds(case_of(config, **{CONFIG: {"added_tokens_decoder": decoder}})) == found


@pytest.mark.parametrize(("text", "found"), [("</s>", []), ("<pad>", ["eos-disagrees"])])
def test_the_end_of_a_tokenizer_is_known_by_a_plain_vocabulary(text, found):
    files = {"vocab.json": {"<pad>": 1, "</s>": 2}, GENERATION: {"eos_token_id": 2}}
    assert kinds(case_of({"eos_token_id": 2}, **files, **{CONFIG: {"eos_token": text}})) == found


def test_a_token_of_the_vocabulary_keeps_its_id_when_it_is_added():
    """As the tokenizers library adds it; test_real_tokenizers.py has the judge."""
    files = {"vocab.json": {"</s>": 2}, "added_tokens.json": {"</s>": 9}}
    files |= {GENERATION: {"eos_token_id": 2}, CONFIG: {"eos_token": "</s>"}}
    assert kinds(case_of({"eos_token_id": 2}, **files)) == []


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("chat_template.jinja", BROKEN),
        ("additional_chat_templates/tool_use.jinja", BROKEN),
        ("chat_template.json", {"chat_template": BROKEN}),
        ("processor_config.json", {"chat_template": BROKEN}),
        (CONFIG, {"chat_template": BROKEN}),
        (CONFIG, {"chat_template": [{"name": "rag", "template": BROKEN}]}),
        (CONFIG, {"chat_template": {"rag": BROKEN}}),
    ],
)
def test_a_template_is_looked_for_wherever_transformers_does(file, said):
    [finding] = file_findings(case_of(**{file: said}))
    assert (finding.kind, finding.says[0][0]) == ("chat-template-broken", file)


@pytest.mark.parametrize(("text", "found"), [("{{ b }}\n", []), ("", ["chat-template-broken"])])
def test_a_named_template_that_is_there_twice_is_compared_by_its_name(text, found):
    said = [{"name": "rag", "template": text}, {"name": "tool_use", "template": "{{ c }}"}]
    files = {"additional_chat_templates/rag.jinja": "{{ b }}", CONFIG: {"chat_template": said}}
    assert kinds(case_of(**files)) == found


def test_a_named_template_beside_the_default_differs_as_it_should():
    files = {"chat_template.jinja": "{{ a }}", "additional_chat_templates/rag.jinja": "{{ b }}"}
    assert kinds(case_of(**files)) == []


# --- the turns of a chat -----------------------------------------------------------------------


def tokenizer_of(*added, vocabulary=("the", "fox")):
    """A tokenizer.json: first the vocabulary's tokens, then the added ones."""
    start = len(vocabulary)
    tokens = [{"id": start + at, "content": text} for at, text in enumerate(added)]
    vocab = {text: at for at, text in enumerate(vocabulary)}
    return {"added_tokens": tokens, "model": {"type": "BPE", "vocab": vocab, "merges": []}}


def chat(template, *added, config, generation=None, named=None):
    """A model of these added tokens, from id 2 on; the ends are texts of theirs."""
    ids = {text: 2 + at for at, text in enumerate(added)}
    files = {"tokenizer.json": tokenizer_of(*added), "chat_template.jinja": template}
    if generation is not None:
        files[GENERATION] = {"eos_token_id": [ids[text] for text in generation]}
    files[CONFIG] = {"eos_token": named or config}
    return case_of({"eos_token_id": ids[config]}, rows=40, **files)


PROMPT = "{%% if add_generation_prompt %%}%s{%% endif %%}"
CHATML_TURNS = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}"
)
CHATML = CHATML_TURNS + PROMPT % "<|im_start|>assistant\n"
CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
BY_ROLE = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}"
    "QUESTION{% elif message['role'] == 'assistant' %}ANSWER{% endif %}{% endfor %}"
)
MISTRAL = BY_ROLE.replace("QUESTION", "{{ '[INST] ' + message['content'] + ' [/INST]' }}").replace(
    "ANSWER", "{{ ' ' + message['content'] + eos_token }}"
)
GLM = (
    "[gMASK]<sop>{% for item in messages %}<|{{ item['role'] }}|>\n{{ item['content'] }}"
    "{% endfor %}"
) + PROMPT % "<|assistant|>\n"
VICUNA_TURNS = BY_ROLE.replace("QUESTION", "USER: {{ message.content }} ").replace(
    "ANSWER", "ASSISTANT: {{ message.content | trim }}{{ eos_token }}"
)
PHI = BY_ROLE.replace(
    "QUESTION", "{{ '<|user|>\n' + message['content'] + '<|end|>\n<|assistant|>\n' }}"
).replace("ANSWER", "{{ message['content'] + '<|end|>\n' }}")
GEMMA_TURNS = (
    "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}"
    "{{ raise_exception('no system') }}{% endif %}{% set role = 'model' %}"
    "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}"
    "{% endfor %}"
)
GEMMA = GEMMA_TURNS + PROMPT % "{{'<start_of_turn>model\n'}}"
CALLS = (
    "{% for m in messages %}{% if m.role == 'assistant' and m.tool_calls %}<|end|>{{ m.content }}"
    "{% for call in m.tool_calls %}<|call|>{% endfor %}{% elif loop.last %}{{ m.content }}"
    "<|return|>{% else %}<|start|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
) + PROMPT % "<|start|>"


@pytest.mark.parametrize(
    "case",
    [
        chat(CHATML, *CHATML_TOKENS, config="<|im_end|>", generation=["<|im_end|>"]),
        chat(CHATML, *CHATML_TOKENS, config="<|im_end|>", generation=CHATML_TOKENS[::2]),
        chat(MISTRAL, "</s>", "[INST]", "[/INST]", config="</s>"),
        chat(VICUNA_TURNS + PROMPT % "ASSISTANT:", "</s>", config="</s>", generation=["</s>"]),
        chat(GLM, "<|endoftext|>", "<|user|>", config="<|user|>"),
        chat(PHI, "<|endoftext|>", "<|end|>", config="<|end|>", generation=["<|end|>"]),
        chat(
            GEMMA, "<eos>", "<end_of_turn>", config="<eos>", generation=["<eos>", "<end_of_turn>"]
        ),
        chat(CALLS, "<|end|>", "<|call|>", "<|return|>", config="<|return|>"),
    ],
)
def test_a_chat_that_ends_where_generation_does_has_no_finding(case):
    assert kinds(case) == []


@pytest.mark.parametrize(
    ("template", "added", "end"),
    [
        (CHATML, CHATML_TOKENS, "<|endoftext|>"),  # as published beside base models
        (GEMMA, ("<eos>", "<end_of_turn>"), "<eos>"),
        (PHI, ("<|endoftext|>", "<|end|>"), "<|endoftext|>"),
    ],
)
def test_turns_that_end_at_no_end_of_documents_are_a_note(template, added, end):
    [finding] = file_findings(chat(template, *added, config=end, generation=[end]))
    assert (finding.kind, finding.severity.name) == ("tokenizer-note", "INFO")
    assert added[-1] in finding.reason


def test_turns_that_end_at_no_end_of_another_format_are_a_finding():
    case = chat(CHATML, *CHATML_TOKENS, "<|eot_id|>", config="<|eot_id|>")
    [finding] = file_findings(case)
    assert finding.kind == "chat-turns-wrong"
    assert "[4, 5]" in finding.fix


def test_an_end_of_unknown_text_tells_nothing_about_turns():
    files = {"tokenizer.json": tokenizer_of(*CHATML_TOKENS), "chat_template.jinja": CHATML}
    assert kinds(case_of({"eos_token_id": 1}, rows=40, **files)) == []


@pytest.mark.parametrize(
    ("template", "found"),
    [
        (CHATML_TURNS, ["chat-turns-wrong"]),
        (GEMMA_TURNS, ["chat-turns-wrong"]),
        (VICUNA_TURNS, ["chat-turns-wrong"]),
        (MISTRAL, []),  # the header of an answer belongs to the question
        (PHI, []),
        ("{% for m in messages %}{{ m.role + ': ' + m.content }}{% endfor %}", []),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", []),
    ],
)
def test_a_header_that_nobody_writes_for_the_answer_is_a_finding(template, found):
    end = "<|im_end|>"
    tokens = (end, "<end_of_turn>", "<|end|>", "</s>")
    case = chat(template, *tokens, config=end, generation=tokens, named=end)
    assert kinds(case) == found


@pytest.mark.parametrize(
    ("end", "found"),
    [
        ("the", ["chat-turns-wrong"]),
        ("Ġfox", ["chat-turns-wrong"]),
        ("</s>", []),
        ("<|end|>", []),  # not of the added tokens
        ("eos", []),
        ("a", []),
        ("2", []),
    ],
)
def test_an_end_token_that_is_an_ordinary_word_is_a_finding(end, found):
    vocabulary = ("the", "Ġfox", "<|end|>", "eos", "a", "2")
    document = tokenizer_of("</s>", vocabulary=vocabulary)
    ids = {**{text: at for at, text in enumerate(vocabulary)}, "</s>": len(vocabulary)}
    config = {"eos_token_id": ids[end]}
    case = case_of(config, **{CONFIG: {"eos_token": end}, GENERATION: config})
    file = summary("tokenizer.json", json.dumps(document).encode(), tokens=[end])
    case = replace(case, companions=Companions.of((*case.companions.files.values(), file)))
    assert kinds(case) == found


@pytest.mark.parametrize(
    ("settings", "config", "keys"),
    [
        ({"truncation": None, "padding": None}, {}, []),
        ({"truncation": {"max_length": 64}}, {"max_position_embeddings": 256}, ["truncation"]),
        ({"truncation": {"max_length": 256}}, {"max_position_embeddings": 256}, []),
        (
            {"truncation": {"max_length": 64}},
            {"model_type": "gpt2", "n_positions": 128},
            ["truncation"],
        ),
        ({"truncation": {"max_length": 64}}, {}, []),  # the model's length is not known
        ({"padding": {"strategy": {"Fixed": 64}}}, {}, ["padding"]),
        ({"padding": {"strategy": "BatchLongest"}}, {}, []),
    ],
)
def test_a_length_that_tokenizer_json_saves_is_a_note(settings, config, keys):
    findings = [*file_findings(case_of(config, **{"tokenizer.json": settings | tokenizer_of()}))]
    assert [one.kind for one in findings] == ["tokenizer-note"] * len(keys)
    assert [one.says[0][1].partition(".")[0] for one in findings] == keys


PAIR = {"model_type": "vision-encoder-decoder", "encoder": {"model_type": "vit"}}


def test_an_encoder_of_images_wants_a_processor():
    target = "VisionEncoderDecoderModel"
    assert kinds(case_of(PAIR, target=target)) == ["processor-missing"]
    assert kinds(case_of(PAIR, target=target, **{"preprocessor_config.json": {}})) == []
    texts = {"model_type": "encoder-decoder", "encoder": {"model_type": "bert"}}
    assert kinds(case_of(texts, target="EncoderDecoderModel")) == []


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        ({"num_hiden_layers": 2}, ["num_hiden_layers"]),
        ({"num_hiden_layers": 2, "num_hidden_layers": 2}, []),  # the key is there
        ({"num_hiden_layers": "2"}, []),  # of another kind
        ({"model_type": "gemma4", "eoa_token_id": 3}, []),  # a key of its own, whatever reads it
        ({"model_type": "bert", "boa_token_id": 3}, []),  # some class of the library reads it
    ],
)
def test_a_rename_is_proposed_for_a_key_that_nothing_reads(config, keys):
    findings = key_findings(case_of({"model_type": "llama"} | config))
    assert [finding.says[0][1] for finding in findings] == keys


QWEN = {"model_type": "qwen2_5_vl"}


@pytest.mark.parametrize(
    ("file", "values", "keys"),
    [
        ("preprocessor_config.json", {"image_processor_type": "Qwen2VLImageProcessorFast"}, []),
        ("preprocessor_config.json", {"feature_extractor_type": "ViTFeatureExtractor"}, []),
        ("preprocessor_config.json", {"image_processor_type": "Mine", "auto_map": {}}, []),
        ("preprocessor_config.json", {"processor_class": "Wav2Vec2ProcessorWithLM"}, []),
        (
            "preprocessor_config.json",
            {"image_processor_type": "Qwen2_5_VLImageProcessor", "processor_class": "Gone"},
            ["image_processor_type", "processor_class"],
        ),
        (
            "processor_config.json",
            {"image_processor": {"image_processor_type": "Gone"}},
            ["image_processor.image_processor_type"],
        ),
        (
            "video_preprocessor_config.json",
            {"video_processor_type": "Gone"},
            ["video_processor_type"],
        ),
    ],
)
def test_a_class_of_a_processor_that_the_library_does_not_have_is_a_finding(file, values, keys):
    findings = [*file_findings(case_of(QWEN, target="Qwen2_5_VLModel", **{file: values}))]
    assert [finding.kind for finding in findings] == ["processor-unknown"] * len(keys)
    assert [finding.says[0][1] for finding in findings] == keys
    if "image_processor_type" in keys:
        assert "Qwen2VLImageProcessor" in findings[0].fix


def test_a_model_type_that_the_library_does_not_know_may_have_any_processor():
    case = case_of({"model_type": "llama9"}, **{PREPROCESSOR: {"image_processor_type": "Llama9"}})
    assert kinds(case) == []


@pytest.mark.oracle
def test_the_library_finds_the_classes_that_the_data_file_has():
    pytest.importorskip("transformers", reason="the judge of which classes there are")
    from rebuild_processors import processors  # noqa: PLC0415 - imports the library
    from transformers.models.auto.feature_extraction_auto import (  # noqa: PLC0415
        feature_extractor_class_from_name,
    )

    known = library_processors()
    rebuilt = processors()
    assert (known.transformers, known.by_type) == (rebuilt["transformers"], rebuilt["by_type"])
    assert known.classes == set(rebuilt["classes"])
    for name in ("WhisperFeatureExtractor", "ViTFeatureExtractor", "NoSuchFeatureExtractor"):
        is_class = feature_extractor_class_from_name(name) is not None
        assert (name in known.classes) is is_class, name


def test_a_pair_reveals_a_size_of_its_decoder():
    config = {**PAIR, "vocab_size": 7, "decoder": {"model_type": "gpt2", "vocab_size": 8}}
    [finding] = contradiction_findings(case_of(config))
    assert [key for _, key, _ in finding.says] == ["vocab_size", "decoder.vocab_size"]


@pytest.mark.parametrize("model_type", sorted(FLAT))
def test_a_flat_config_is_read_by_the_class_of_its_text(model_type):
    transformers = pytest.importorskip("transformers", reason="the judge of who reads a key")
    built = transformers.CONFIG_MAPPING[model_type].from_dict({"intermediate_size": 48})
    assert built.text_config.intermediate_size == 48
    [finding] = key_findings(case_of({"model_type": model_type, "intermediate_sizes": 48}))
    assert finding.says[1][1] == "intermediate_size"
    nested = {"model_type": model_type, "text_config": {}, "intermediate_sizes": 48}
    assert [*key_findings(case_of(nested))] == []
