"""The config that a GGUF file's metadata imply, under the keys of config.json.

llama.cpp's converter writes the values that it needs under its own keys (conversion/*.py), and
leaves out properties that the tensors show: biases, norms of heads, a tied output. This module
derives these from the table of tensors, as llama.cpp does when it loads a file: a file without any
bias implies a model without biases.
"""

from collections.abc import Mapping
from typing import NamedTuple

from auditor.analytic.gguf_architectures import ARCHITECTURES, Architecture, Facts, Values
from auditor.containers.gguf import GgufHeader
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.messages import named, quoted


class Reconstructed(NamedTuple):
    """The config that a GGUF file's metadata imply, and the class to audit for."""

    values: Values
    target: str | None  # the class to audit for, if it differs from the declared class


def reconstructed_config(
    header: GgufHeader, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> Reconstructed:
    """Return the config that a GGUF header implies.

    `shapes` are the shapes of all shards' tensors; None means the tensors of this header.

    Raise CheckpointError if the metadata lack a key that llama.cpp requires of every model,
    SourceError if the architecture has no closed form.
    """
    if shapes is None:
        shapes = {tensor.name: tensor.shape or () for tensor in header.tensors}
    arch = header.text("general.architecture")
    if arch is None:
        raise CheckpointError(f"{named(header.file)} has no general.architecture in its metadata")
    architecture = _known_architecture(header, arch)
    facts = Facts(header, arch, shapes)
    values = {
        "model_type": architecture.model_type,
        "architectures": [architecture.name],
        **_common(facts, tied=architecture.tied),
        **architecture.more(facts),
    }
    stated = {key: value for key, value in values.items() if value is not None}
    return Reconstructed({**dict.fromkeys(architecture.nulls), **stated}, architecture.target)


def _known_architecture(header: GgufHeader, arch: str) -> Architecture:
    kind = header.text("general.type")
    if kind not in {None, "model"}:
        detail = f"{named(header.file)} holds no model: its general.type is {quoted(kind or '')}"
        raise SourceError(Reason.UNKNOWN_ARCHITECTURE, detail)
    if arch not in ARCHITECTURES:
        detail = f"no closed form is known for the GGUF architecture {quoted(arch)}"
        raise SourceError(Reason.UNKNOWN_ARCHITECTURE, detail)
    return ARCHITECTURES[arch]


def _common(facts: Facts, *, tied: bool) -> Values:
    heads = facts.number("attention.head_count")
    for key in ("embedding_length", "block_count"):
        if facts.number(key) is None:
            file = named(facts.header.file)
            raise CheckpointError(f"{file} has no {quoted(f'{facts.arch}.{key}')} in its metadata")
    return {
        "vocab_size": _vocabulary(facts),
        "hidden_size": facts.number("embedding_length"),
        "intermediate_size": facts.number("feed_forward_length"),
        "num_hidden_layers": facts.number("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": facts.number("attention.head_count_kv") or heads,
        "max_position_embeddings": facts.number("context_length"),
        "sliding_window": facts.number("attention.sliding_window"),
        "head_dim": _head_dim(facts, heads),
        "num_experts_per_tok": facts.number("expert_used_count"),
        "moe_intermediate_size": facts.number("expert_feed_forward_length")
        or facts.width("ffn_gate_exps.weight", -2),
        "attention_bias": facts.has("attn_q.bias", "attn_qkv.bias"),
        "mlp_bias": facts.has("ffn_up.bias"),
        "tie_word_embeddings": tied or "output.weight" not in facts.shapes,
    }


def _vocabulary(facts: Facts) -> int | None:
    """Return the vocabulary size: the number of tokens, the metadata's, or the embedding's rows.

    llama.cpp reads the number in the metadata only if the file has no tokenizer.
    """
    rows = facts.shapes.get("token_embd.weight", ())
    tokens = facts.header.length("tokenizer.ggml.tokens")
    if facts.header.text("tokenizer.ggml.model") in {None, "none", "no_vocab"}:
        tokens = facts.number("vocab_size") or tokens
    return tokens or facts.number("vocab_size") or (rows[0] if rows else None)


def _head_dim(facts: Facts, heads: int | None) -> int | None:
    """Return a head's size as llama.cpp computes it: key_length, else embedding_length / heads."""
    width = facts.number("embedding_length")
    stated = facts.number("attention.key_length")
    return stated or (width // heads if width and heads else None)
