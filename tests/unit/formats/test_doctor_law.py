"""`audit doctor` over folders with any companion files: it says ok only of what was compared."""

import json
import re

from hypothesis import example, given
from hypothesis import strategies as st
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.examples import examples

from auditor import audit
from auditor.findings import Severity, TokenizerNote
from auditor.formats import doctor

TOKENS = ("<s>", "</s>", "<|im_start|>", "<|im_end|>")
IDS = {text: at for at, text in enumerate(TOKENS)}
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
BY_EOS = CHATML.replace("<|im_end|>", "{{ eos_token }}")
ENDS = st.sampled_from([None, 1, 3, [1, 3], 99, "x", -1, [[]]])
BROKEN = ("{", "[]", "\udcff", "")


def texts(*values):
    """A file's text: one of the values as JSON, or one that nobody can read."""
    sound = [value.map(json.dumps) for value in values]
    return st.one_of(*sound, *sound, *sound, *sound, *sound, st.sampled_from(BROKEN))


def with_keys(**keys):
    return st.fixed_dictionaries({}, optional=keys)


def vocabulary(top):
    return {"</s>": 1, "<s>": 0, "a": top} | {text: at for text, at in IDS.items() if at <= top}


TWO_ENDS = CHATML.replace(
    "<|im_end|>", "{% if message.tool_calls %}</s>{% else %}<|im_end|>{% endif %}"
)
TEMPLATES = st.sampled_from([CHATML, BY_EOS, TWO_ENDS, "{{ messages", "{{ 1 }}", 3, "x" * 60_000])
FILES = {
    "generation_config.json": texts(
        with_keys(eos_token_id=ENDS, temperature=st.just(0.5), do_sample=st.booleans())
    ),
    "tokenizer.json": texts(
        st.sampled_from([4, 12, 40]).map(
            lambda top: {
                "added_tokens": [{"id": at, "content": text} for text, at in IDS.items()],
                "model": {"type": "BPE", "vocab": {"a": 4, "b": top}, "merges": []},
            }
        )
    ),
    "vocab.json": texts(st.sampled_from([4, 12, 40]).map(vocabulary)),
    "tokenizer_config.json": texts(
        with_keys(
            eos_token=st.sampled_from([*TOKENS, "a", "none", 5]),
            chat_template=TEMPLATES,
            auto_map=st.sampled_from(
                [{"AutoTokenizer": ["x.A", None]}, {"AutoTokenizer": "y--x.A"}]
            ),
        )
    ),
    "special_tokens_map.json": texts(with_keys(eos_token=st.sampled_from(TOKENS))),
    "chat_template.jinja": TEMPLATES.filter(lambda text: isinstance(text, str)),
    "preprocessor_config.json": texts(
        with_keys(image_processor_type=st.sampled_from(["ViTImageProcessor", "No", 3]))
    ),
    "x.py": st.just(""),
}
FOLDERS = st.fixed_dictionaries({"README.md": st.just("# x")}, optional=FILES)
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 8,
    "intermediate_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "num_key_value_heads": 2,
    "vocab_size": 16,
}
VIT = {
    "model_type": "vit",
    "architectures": ["ViTForImageClassification"],
    "hidden_size": 8,
    "image_size": 16,
    "intermediate_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 1,
    "patch_size": 8,
}
MODELS = {"LlamaForCausalLM": LLAMA, "ViTForImageClassification": VIT}


def folder_of(tmp_path, target, ends, files):
    values = {**MODELS[target], **({} if ends is None else {"eos_token_id": ends})}
    expected = expect(target, **values)
    tensors = {one.name: ("F32", one.shape) for one in stored_by(expected)}
    (tmp_path / "model.safetensors").write_bytes(safetensors_bytes(tensors))
    (tmp_path / "config.json").write_bytes(config_bytes(**values))
    for name, text in files.items():
        (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
    return tmp_path


def rows_of(outcome):
    """Row -> (state, text) of the printed page."""
    rows, name = {}, ""
    for line in doctor.render(outcome, width=10_000, color=False).splitlines()[2:]:
        found = re.match(r"(\S.*?)  +(\S.*?)  +(\S.*)", line)
        if found:
            state, name, text = found.groups()
            rows[name] = (state, text)
        elif line.strip():
            rows[name] = (rows[name][0], f"{rows[name][1]} {line.strip()}")
    return rows


def about(finding):
    """The rows that a finding is about, by its class alone."""
    if TokenizerNote.describes(finding):
        return (
            {"vocabulary"}
            if "tokenizer.json" in finding.reason
            else {"chat template", "end tokens"}
        )
    if finding.kind == "chat-turns-wrong":
        return {"chat template", *(["end tokens"] if "generation ends" in finding.reason else [])}
    return {topic.name for topic in doctor.TOPICS if finding.kind in topic.kinds}


def declared(files, ends):
    """The end tokens of config and generation config, as they are written."""
    values = ends, loaded(files.get("generation_config.json", "")).get("eos_token_id")
    return [value for value in values if value is not None]


def loaded(text):
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


@examples(150)
@given(target=st.sampled_from([*MODELS]), ends=ENDS, files=FOLDERS)
@example(
    target="LlamaForCausalLM",
    ends=1,
    files={
        "README.md": "",
        "chat_template.jinja": CHATML,
        "tokenizer.json": json.dumps(
            {
                "added_tokens": [{"id": at, "content": text} for text, at in IDS.items()],
                "model": {"type": "BPE", "vocab": {"a": 4}, "merges": []},
            }
        ),
    },
)
def test_ok_is_only_what_was_read_and_has_no_finding(target, ends, files, tmp_path_factory):
    outcome = audit(str(folder_of(tmp_path_factory.mktemp("model"), target, ends, files)))
    rows = rows_of(outcome)
    good = {name for name, (state, _) in rows.items() if state == "ok"}
    for finding in outcome.findings:
        assert good.isdisjoint(about(finding)), finding
        if finding.severity is not Severity.INFO:
            assert {rows[name][0] for name in about(finding)} & {"wrong"}, finding
    named = {name: set(re.findall(r"[\w.]+\.(?:json|jinja|py)", rows[name][1])) for name in good}
    there = {"config.json", *files}
    template_line = "the chat template was not checked"  # the rest of its file is
    lines = [line for line in outcome.unchecked if template_line not in line]
    assert "chat template" not in good or lines == [*outcome.unchecked]
    unread = {name for line in lines for name in there if line.startswith(f"{name}: ")}
    for name in good:
        assert named[name] <= there - unread, rows[name]
    template = {"chat_template.jinja", "tokenizer_config.json"}
    needed = {
        "vocabulary": {"tokenizer.json", "vocab.json"},
        "chat template": template,
        "generation": {"generation_config.json"},
        "processor": {"preprocessor_config.json"},
    }
    for name in good & needed.keys():
        assert named[name] & needed[name], rows[name]
    ids = [
        {json.dumps(one) for one in (value if isinstance(value, list) else [value])}
        for value in declared(files, ends)
    ]
    if "end tokens" in good:
        assert len(named["end tokens"]) > 1
        is_text = target == "LlamaForCausalLM"  # the other has no embedding of tokens
        assert all(one <= {"1", "3"} for one in ids) or not is_text
        assert all(one <= two or two <= one for one in ids for two in ids)
    if "chat template" in good and "im_end" in rows["chat template"][1]:
        assert "3" in set().union(*ids) or any(
            '"eos_token": "<|im_end|>"' in one for one in files.values()
        )
