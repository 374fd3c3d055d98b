"""The models that are measured with what stands beside their weights, of published sizes."""

import json
from collections.abc import Iterator

from support.hub import Hub

from benching.models import Files, llama, single

BERT_REPOSITORY, LLAMA_REPOSITORY = "bench/bert-repository", "bench/llama-repository"

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Of the statements that Llama-3.1-8B-Instruct's has, and about as long.
_MESSAGES = """\
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>' }}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' }}
        {{- tool_call.arguments | tojson }}
    {%- endif %}
{%- endfor %}
"""
_TEMPLATE = f"""\
{{{{- bos_token }}}}
{{%- if not tools is defined %}}
    {{%- set tools = none %}}
{{%- endif %}}
{_MESSAGES * 6}
{{%- if add_generation_prompt %}}
    {{{{- '<|start_header_id|>assistant<|end_header_id|>' }}}}
{{%- endif %}}
"""


def add_repositories(hub: Hub) -> None:
    hub.add(BERT_REPOSITORY, single() | _beside_bert())
    hub.add(LLAMA_REPOSITORY, llama() | _beside_llama())


def _beside_bert() -> Files:
    """bert-base-chinese: 21,128 word pieces."""
    words = (*_SPECIAL, *(f"字{at}" for at in range(5, 21_128)))
    model = {"type": "WordPiece", "vocab": {word: at for at, word in enumerate(words)}}
    added = [_added(at, text) for at, text in enumerate(_SPECIAL)]
    return {
        "tokenizer.json": _json({"version": "1.0", "added_tokens": added, "model": model}),
        "tokenizer_config.json": _json({"do_lower_case": False, "model_max_length": 512}),
        "vocab.txt": "\n".join(words).encode(),
        "README.md": b"# a model\n",
    }


def _beside_llama() -> Files:
    """Llama-3.1-8B-Instruct: 128,000 tokens, 256 reserved ones, a template of 4.6 kB."""
    special = {at: f"<|reserved_special_token_{at}|>" for at in range(128_000, 128_256)}
    added = [_added(at, text) for at, text in special.items()]
    model = {"type": "BPE", "vocab": dict(_words()), "merges": [*_merges()]}
    decoder = {str(at): {"content": text, "special": True} for at, text in special.items()}
    config = {
        "added_tokens_decoder": decoder,
        "chat_template": _TEMPLATE,
        "eos_token": special[128_009],
    }
    ends = [128_001, 128_008, 128_009]
    return {
        "tokenizer.json": _json({"version": "1.0", "added_tokens": added, "model": model}),
        "tokenizer_config.json": _json(config),
        "generation_config.json": _json({"eos_token_id": ends, "do_sample": True}),
        "special_tokens_map.json": _json({"eos_token": {"content": special[128_009]}}),
        "README.md": b"# a model\n",
    }


def _words() -> Iterator[tuple[str, int]]:
    return ((f"Ġtoken{at}", at) for at in range(128_000))


def _merges() -> Iterator[str]:
    return (f"Ġtok en{at}" for at in range(280_147))


def _added(at: int, text: str) -> dict[str, object]:
    return {"id": at, "content": text, "single_word": False, "normalized": False, "special": True}


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
