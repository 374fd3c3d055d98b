"""Repositories that transformers writes whole, and single faults planted beside their weights."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from support.changes import with_values
from support.fault_bench import FAMILIES

from auditor.checkpoint.selecting import with_companions
from auditor.checkpoint.snapshot import RepoFile, Snapshot
from auditor.companions.companion_files import CompanionFile, is_vocabulary, summary
from auditor.downloader import local_folder

ROWS = 96  # of every embedding
TEMPLATE = "{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}{% endfor %}"
# Ids of every family that the small tokenizer has, instead of those of its class.
IDS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
# What ViTImageProcessor, which wants Pillow, writes of itself.
PROCESSED = {"ViTForImageClassification": {"image_processor_type": "ViTImageProcessor"}}


@dataclass(frozen=True, kw_only=True)
class RepositoryFault:
    """One planted fault, and the cause that has to be named."""

    name: str
    snapshot: Snapshot
    cause: str


@cache
def written_repository(name: str, place: Path) -> Snapshot:
    """A small model of a class with all that stands beside it, as transformers writes them."""
    import torch  # noqa: PLC0415 - seconds that only a bench takes
    import transformers  # noqa: PLC0415

    torch.manual_seed(0)
    kind = getattr(transformers, name)
    given = {**IDS, "decoder_start_token_id": 0, **FAMILIES[name]}
    config = kind.config_class(**given)
    folder = place / f"{name}-repository"
    kind(config).save_pretrained(folder)
    if name in PROCESSED:
        (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSED[name]))
    else:
        small_tokenizer().save_pretrained(folder)
    if name.startswith("Whisper"):
        transformers.WhisperFeatureExtractor(feature_size=8).save_pretrained(folder)
    (folder / "README.md").write_text("# a small model\n")
    return local_folder.read(folder, name, with_companions)


def small_tokenizer():
    """Of 64 tokens, the first of which are special; two more were added."""
    from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: PLC0415 - likewise
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    words = ["<pad>", "<s>", "</s>", "<unk>", *(f"w{at}" for at in range(4, 64))]
    named = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), words, strict=False))
    unknown = named["unk_token"]
    model = models.WordLevel({word: at for at, word in enumerate(words)}, unk_token=unknown)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named)
    made.add_special_tokens({"additional_special_tokens": ["<|a|>", "<|b|>"]})
    made.chat_template = TEMPLATE
    return made


# --- changes -----------------------------------------------------------------------------------


def with_file(snapshot: Snapshot, name: str, content: bytes) -> Snapshot:
    """The snapshot of a repository whose file of that name is, or becomes, this one."""
    made = summary(name, content) if is_vocabulary(name) else CompanionFile(name, content)
    others = [one for one in snapshot.companions or () if one.name != name]
    listed = [one for one in snapshot.files if one.name != name]
    files = sorted([*listed, RepoFile(name=name, size=len(content))], key=lambda one: one.name)
    return replace(snapshot, companions=tuple(sorted([*others, made])), files=tuple(files))


def without_file(snapshot: Snapshot, name: str) -> Snapshot:
    return replace(
        snapshot,
        companions=tuple(one for one in snapshot.companions or () if one.name != name),
        files=tuple(one for one in snapshot.files if one.name != name),
    )


def changed_json(snapshot: Snapshot, name: str, **values: Any) -> Snapshot:
    file = next(one for one in snapshot.companions or () if one.name == name)
    said = json.loads(file.content or b"{}")
    return with_file(snapshot, name, json.dumps({**said, **values}).encode())


def tokenizer_json(*added: int, vocabulary: int = 64) -> bytes:
    """A tokenizer.json with added tokens of these ids."""
    tokens = [
        {"id": at, "content": f"<{at}>", "special": True, "single_word": False} for at in added
    ]
    vocab = {f"w{at}": at for at in range(vocabulary)}
    model = {"type": "BPE", "vocab": vocab, "merges": []}
    return json.dumps({"version": "1.0", "added_tokens": tokens, "model": model}).encode()


def _many_added() -> bytes:
    """An added_tokens.json with more tokens than the embedding has rows for."""
    return json.dumps({f"<{at}>": at for at in range(66, 66 + ROWS)}).encode()


def _many_added_by_id() -> dict[str, Any]:
    return {str(at): {"content": text} for text, at in json.loads(_many_added()).items()}


# --- faults ------------------------------------------------------------------------------------


def repository_faults(name: str, snapshot: Snapshot) -> Iterator[RepositoryFault]:
    """Every fault that such a repository can have, each alone."""
    for cause, what, change in _CHANGES:
        spoilt = change(snapshot)
        if spoilt is not None:
            yield RepositoryFault(name=f"{name}: {what}", snapshot=spoilt, cause=cause)


def _config(snapshot: Snapshot) -> dict[str, Any]:
    assert snapshot.config
    return json.loads(snapshot.config.content)


def _has(snapshot: Snapshot, name: str) -> bool:
    return any(one.name == name for one in snapshot.companions or ())


def _when(name: str, change: Callable[[Snapshot], Snapshot]):
    return lambda snapshot: change(snapshot) if _has(snapshot, name) else None


def _embeds(change: Callable[[Snapshot], Snapshot]):
    return _when("tokenizer.json", change)


def _generation(**values: Any):
    return _when(
        "generation_config.json",
        lambda snapshot: changed_json(snapshot, "generation_config.json", **values),
    )


def _set(**values: Any):
    """A key of the config that is added, where the config class has what it contradicts."""
    return lambda snapshot: with_values(snapshot, {**_config(snapshot), **values})


def _misspelt(key: str, wrong: str):
    def change(snapshot: Snapshot) -> Snapshot | None:
        values = _config(snapshot)
        if key not in values:
            return None
        return with_values(snapshot, {wrong: values[key], key: None})

    return change


def _rope(snapshot: Snapshot) -> Snapshot | None:
    values = _config(snapshot)
    theta = (values.get("rope_parameters") or {}).get("rope_theta")
    return with_values(snapshot, {**values, "rope_theta": theta * 2}) if theta else None


def _rope_type(snapshot: Snapshot) -> Snapshot | None:
    values = _config(snapshot)
    rope = values.get("rope_parameters")
    if not rope or "rope_theta" not in rope:
        return None
    return with_values(snapshot, {**values, "rope_parameters": {**rope, "type": "linear"}})


def _synonym(own: str, other: str):
    def change(snapshot: Snapshot) -> Snapshot | None:
        values = _config(snapshot)
        return (
            with_values(snapshot, {**values, own: values[own] + 1, other: values[own]})
            if (own in values and other not in values)
            else None
        )

    return change


def _labels(snapshot: Snapshot) -> Snapshot | None:
    values = _config(snapshot)
    if not isinstance(values.get("id2label"), dict):
        return None
    more = {**values["id2label"], "99": "another"}
    return with_values(
        snapshot, {**values, "num_labels": len(values["id2label"]), "id2label": more}
    )


def _auto_map(snapshot: Snapshot) -> Snapshot:
    values = _config(snapshot)
    auto = {"AutoConfig": "configuration_small.SmallConfig"}
    return with_values(snapshot, {**values, "auto_map": auto})


def _tokenizer_code(snapshot: Snapshot) -> Snapshot:
    auto = {"AutoTokenizer": ["tokenization_small.SmallTokenizer", None]}
    return changed_json(snapshot, "tokenizer_config.json", auto_map=auto)


def _broken_template(text: str):
    return _embeds(lambda snapshot: with_file(snapshot, "chat_template.jinja", text.encode()))


def _older_template(snapshot: Snapshot) -> Snapshot:
    spoilt = without_file(snapshot, "chat_template.jinja")
    return changed_json(spoilt, "tokenizer_config.json", chat_template="{% for m in x %}{{ m }}")


def _without_processor(snapshot: Snapshot) -> Snapshot | None:
    name = "preprocessor_config.json"
    return without_file(snapshot, name) if _has(snapshot, name) else None


_CHANGES: tuple[tuple[str, str, Callable[[Snapshot], Snapshot | None]], ...] = (
    *(
        (
            "token-beyond-embedding",
            f"added tokens {ids}",
            _embeds(lambda one, ids=ids: with_file(one, "tokenizer.json", tokenizer_json(*ids))),
        )
        for ids in ((ROWS,), (95, ROWS, ROWS + 1), (32_000,), (2**63,))
    ),
    (
        "token-beyond-embedding",
        "a longer vocabulary",
        _embeds(lambda one: with_file(one, "tokenizer.json", tokenizer_json(vocabulary=ROWS + 7))),
    ),
    (
        "token-beyond-embedding",
        "added_tokens.json",
        _embeds(lambda one: with_file(one, "added_tokens.json", _many_added())),
    ),
    (
        "token-beyond-embedding",
        "added_tokens_decoder",
        _embeds(
            lambda one: changed_json(
                one, "tokenizer_config.json", added_tokens_decoder=_many_added_by_id()
            )
        ),
    ),
    *(
        ("special-id-beyond-vocabulary", f"{key} in config.json", _embeds(_set(**{key: ROWS + 4})))
        for key in ("bos_token_id", "pad_token_id", "image_token_id", "decoder_start_token_id")
    ),
    *(
        ("special-id-beyond-vocabulary", f"{key} in generation_config", _generation(**{key: 200}))
        for key in ("pad_token_id", "bos_token_id")
    ),
    ("eos-disagrees", "generation_config", _generation(eos_token_id=5)),
    ("eos-disagrees", "a list without it", _generation(eos_token_id=[5, 6])),
    ("chat-template-broken", "a brace", _broken_template(TEMPLATE + "{{ x }")),
    ("chat-template-broken", "no end", _broken_template(TEMPLATE + "{% if x %}")),
    ("chat-template-broken", "an unknown tag", _broken_template(TEMPLATE + "{% foo %}")),
    ("chat-template-broken", "in tokenizer_config", _embeds(_older_template)),
    (
        "chat-template-broken",
        "twice",
        _embeds(
            lambda one: changed_json(one, "tokenizer_config.json", chat_template="{{ messages }}")
        ),
    ),
    ("generation-config-invalid", "temperature", _generation(do_sample=False, temperature=0.7)),
    ("generation-config-invalid", "top_p", _generation(do_sample=False, top_p=0.5)),
    ("generation-config-invalid", "beams", _generation(num_return_sequences=3)),
    ("generation-config-invalid", "early stopping", _generation(early_stopping="soon")),
    ("generation-config-invalid", "no new tokens", _generation(max_new_tokens=0)),
    ("config-contradiction", "dtypes", _set(torch_dtype="bfloat16", dtype="float32")),
    ("config-contradiction", "rope_theta", _rope),
    ("config-contradiction", "rope type", _rope_type),
    ("config-contradiction", "labels", _labels),
    ("config-contradiction", "n_embd and hidden_size", _synonym("n_embd", "hidden_size")),
    ("config-contradiction", "d_model and hidden_size", _synonym("d_model", "hidden_size")),
    *(
        ("unknown-config-key", f"{key} as {wrong}", _misspelt(key, wrong))
        for key, wrong in (
            ("num_hidden_layers", "num_hidden_layer"),
            ("intermediate_size", "intermediate_sise"),
            ("layer_norm_eps", "layer_norm_esp"),
            ("rms_norm_eps", "rms_nrm_eps"),
            ("max_position_embeddings", "max_position_embedding"),
            ("hidden_dropout_prob", "hidden_dropout_probs"),
            ("attention_dropout", "attention_drop_out"),
            ("num_decoder_layers", "num_decoder_layer"),
            ("n_positions", "n_position"),
            ("encoder_layers", "encoders_layers"),
        )
    ),
    ("code-not-there", "of the config", _auto_map),
    ("code-not-there", "of the tokenizer", _embeds(_tokenizer_code)),
    ("processor-missing", "no processor", _without_processor),
)
