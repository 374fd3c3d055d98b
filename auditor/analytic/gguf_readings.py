"""The numbers of blocks, experts and heads that the tensors of a GGUF file show.

llama.cpp builds the shape of each tensor from the metadata, and refuses a file with another one; a
key that it reads with a default may be absent. Names of tensors are those of its `gguf` package.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from auditor.analytic.gguf_architectures import Facts
from auditor.containers.gguf import GgufHeader
from auditor.containers.gguf_reader import Skipped
from auditor.messages import named

TOKENS = "tokenizer.ggml.tokens"  # its length is the number of rows that llama.cpp expects
# Keys that may have a value for each block; llama.cpp overrides them only if the file has them.
_PER_BLOCK = (".feed_forward_length", ".head_count", ".head_count_kv")
_BLOCK = re.compile(r"(?:enc\.|dec\.)?blk\.(\d{1,6})\.", re.ASCII)
# Architectures of which llama.cpp refuses another rope.dimension_count than the size of a head.
_ROTATED = frozenset({"llama", "falcon"})
_GATES = ("ffn_gate_exps.weight", "ffn_up_exps.weight")


class GgufReading(NamedTuple):
    """A key of the metadata whose value differs from what the tensors show."""

    key: str  # complete: llama.expert_count
    declared: int | None  # None: the key is absent
    shown: int | None  # None: the tensors show that there is no such thing
    tensor: str  # which shows it, as in a sentence

    @property
    def difference(self) -> str:
        """The difference, and what llama.cpp makes of it, as a clause."""
        key, declared, shown, tensor = self
        if key == TOKENS:
            lists = f"the file lists {declared:,} tokens, {tensor} has {shown:,} rows"
            return f"{lists}, and llama.cpp refuses a file in which they differ"
        is_declared = f"{key} is {'absent' if declared is None else declared}"
        shows = "have no experts" if shown is None else f"shows {shown}"
        is_clip = key.startswith("clip.")
        then = "llama.cpp's clip goes by the metadata" if is_clip else "llama.cpp refuses the file"
        return f"{is_declared}, and {tensor} {shows}: {then}"

    def remedy(self, file: str, used: str) -> str:
        """Return what to do; `used` is the key of the experts per token if it changes as well."""
        key, declared, shown, _ = self
        if key == TOKENS:
            return "convert the model again, with the tokenizer that it was trained with"
        if shown is None:
            both = f"--remove-metadata {key} --remove-metadata {used}"
            return f"remove them: gguf_new_metadata.py {both}"
        remedy = "convert the model again with a current convert_hf_to_gguf.py"
        if declared is not None:
            remedy = f"run gguf_set_metadata.py {named(file)} {key} {shown}"
        if key.startswith("clip.") or (declared is None and key.endswith(_PER_BLOCK)):
            return remedy  # no option overrides it
        more = f" --override-kv {used}=int:N, N as in the original model's config" if used else ""
        return f"{remedy}, or load it with --override-kv {key}=int:{shown}{more}"


def differing(facts: Facts) -> Iterator[GgufReading]:
    """Yield the keys that differ from the tensors, keys on which other shapes depend first.

    A list with a number for each block is not compared.
    """
    if facts.arch == "clip":
        yield from _of_projector(facts)
        return
    rows = facts.shapes.get("token_embd.weight", ())[:1]
    tokens = facts.header.length(TOKENS)
    if rows and tokens is not None and tokens != rows[0]:
        yield GgufReading(TOKENS, tokens, rows[0], "token_embd.weight")
    for key, read in _READINGS.items():
        name = f"{facts.arch}.{key}"
        value = facts.header.metadata.get(name)
        if value is not None and type(value) is not int:
            continue
        for shown, tensor in read(facts):
            if shown != value:
                yield GgufReading(name, value, shown, tensor)


def _of_projector(facts: Facts) -> Iterator[GgufReading]:
    """Yield the differing numbers of a projector's towers, for images and for audio."""
    for tower, letter in (("vision", "v"), ("audio", "a")):
        blocks = re.compile(rf"{letter}\.blk\.(\d{{1,4}})\.", re.ASCII)
        numbers = [int(match[1]) for name in facts.shapes if (match := blocks.match(name))]
        if not numbers:
            continue
        (width,) = facts.shapes.get(f"{letter}.blk.0.ln1.weight", (None,))[:1]
        for key, shown, tensor in (
            ("embedding_length", width, f"{letter}.blk.0.ln1.weight"),
            ("block_count", max(numbers) + 1, f"{letter}.blk.{max(numbers)}"),
        ):
            declared = facts.number(f"{tower}.{key}")
            if shown not in {None, declared}:
                yield GgufReading(f"clip.{tower}.{key}", declared, shown, tensor)


def with_values(header: GgufHeader, values: Mapping[str, int | None]) -> Mapping[str, object]:
    """Return the metadata of a header with other values; None removes a key."""
    metadata: dict[str, object] = {**header.metadata}
    for key, value in values.items():
        if value is None:
            metadata.pop(key, None)
        else:
            metadata[key] = Skipped("string", value) if key == TOKENS else value
    return MappingProxyType(metadata)


_Read = Callable[[Facts], Iterator[tuple[int | None, str]]]


def _length(axis: int, *names: str) -> _Read:
    """Return the reading of the length of an axis of a block's tensor, the first that is stored."""

    def read(facts: Facts) -> Iterator[tuple[int, str]]:
        for name in names:
            if (length := facts.width(name, axis)) is not None:
                yield length, name
                return

    return read


def _top(axis: int, name: str) -> _Read:
    def read(facts: Facts) -> Iterator[tuple[int, str]]:
        shape = facts.shapes.get(name, ())
        if len(shape) >= -axis:
            yield shape[axis], name

    return read


def _blocks(facts: Facts) -> Iterator[tuple[int, str]]:
    """Yield the number of blocks up to the last one; T5's decoder has a key of its own."""
    numbers = {int(match[1]): name for name in facts.shapes if (match := _BLOCK.match(name))}
    if numbers:
        last = max(numbers)
        yield last + 1, f"blk.{last}"


def _experts(facts: Facts) -> Iterator[tuple[int | None, str]]:
    """Yield the number of experts, or None if no block stores any."""
    for name in (*_GATES, "ffn_down_exps.weight"):
        for tensor, shape in facts.shapes.items():
            if tensor.endswith(f".{name}") and len(shape) > 2:  # noqa: PLR2004 - (E, out, in)
                yield shape[0], name
                return
    if not any("_exps." in name or ".ffn_gate_inp." in name for name in facts.shapes):
        yield None, "the blocks"


def _heads(of: str, other: str) -> _Read:
    """Return the reading of a number of heads: the rows of `of`, divided by a head's size."""

    def read(facts: Facts) -> Iterator[tuple[int, str]]:
        rows, width = facts.width(of, -2), facts.number("embedding_length")
        others, heads = facts.width(other, -2), facts.number("attention.head_count")
        stated = facts.number("attention.key_length") or facts.width("attn_k_norm.weight", -1)
        if facts.arch in _ROTATED:
            stated = stated or facts.number("rope.dimension_count")
        keys = facts.number("attention.head_count_kv")
        if of == "attn_k.weight":
            size = stated or (width // heads if width and heads else None)
        else:
            size = stated or (others // keys if others and keys else None)
        if rows and size and rows % size == 0:
            yield rows // size, of

    return read


_READINGS: Mapping[str, _Read] = MappingProxyType(
    {
        "embedding_length": _top(-1, "token_embd.weight"),
        "block_count": _blocks,
        "context_length": _top(-2, "position_embd.weight"),
        "feed_forward_length": _length(-1, "ffn_down.weight"),
        "expert_count": _experts,
        "expert_feed_forward_length": _length(-2, *_GATES),
        "expert_shared_feed_forward_length": _length(-2, "ffn_gate_shexp.weight"),
        "attention.key_length": _length(-1, "attn_k_norm.weight"),
        "attention.head_count_kv": _heads("attn_k.weight", "attn_q.weight"),
        "attention.head_count": _heads("attn_q.weight", "attn_k.weight"),
        "attention.kv_lora_rank": _length(-1, "attn_kv_a_norm.weight"),
        "attention.q_lora_rank": _length(-1, "attn_q_a_norm.weight"),
        "ssm.inner_size": _length(-1, "ssm_out.weight"),
        "ssm.state_size": _length(-1, "ssm_a"),
        "ssm.conv_kernel": _length(-1, "ssm_conv1d.weight"),
    }
)
