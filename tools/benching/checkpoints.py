"""The checkpoints that the bench serves: their ids, titles, and how much is in them.

What was published of each is told apart from how it is built (models.py, formats_models.py), so
that the measuring process, which must stay small, imports no more than this.
"""

from math import prod
from typing import NamedTuple

from support import deepseek_v3

BERT, LLAMA, DEEPSEEK = "bert-base-chinese", "bench/llama-3.1-8b", "bench/deepseek-v3"
MANY_LAYERS = "bench/many-layers"
TORCH, GGUF, GPTQ = "bench/llama-2-7b", "bench/llama-3.1-8b-gguf", "bench/llama-2-7b-gptq"
GGUF_FILE = "Llama-3.1-8B-Q4_K_M.gguf"

LAYERS = 5625  # of BERT: 16 tensors each and 7 around them, 90,007 in all
SHARDS = 20  # of these


class Checkpoint(NamedTuple):
    """One model that is served."""

    model: str
    title: str
    parameters: int
    # What else may be counted: elements as they are stored, parameters with buffers.
    others: tuple[int, ...] = ()
    file: str | None = None  # its only weight file, for tools that are given a URL


def listed(layers: int = LAYERS, experts: int = deepseek_v3.EXPERTS) -> tuple[Checkpoint, ...]:
    """Checkpoints of safetensors files, from the usual one to the largest."""
    return (
        Checkpoint(BERT, "bert-base-chinese: one file, 206 tensors", 102_882_442),
        Checkpoint(LLAMA, "Llama-3.1-8B: 4 shards, 291 tensors in bf16", 8_030_261_248),
        _deepseek(experts),
        _many_layers(layers),
    )


def packed() -> tuple[Checkpoint, ...]:
    """Checkpoints in other formats, and one whose weights are packed."""
    return (
        Checkpoint(TORCH, "Llama-2-7B as torch.save writes it: 2 shards, 13.5 GB", 6_738_415_616),
        Checkpoint(
            GGUF,
            "Llama-3.1-8B as GGUF, Q4_K_M: 4.9 GB with 7.8 MB of metadata",
            8_030_261_248,
            (8_030_261_312,),  # with rope_freqs: 64 factors of the rotation
            GGUF_FILE,
        ),
        Checkpoint(
            GPTQ,
            "Llama-2-7B as GPTQ, 4 bits with g_idx: one file of 3.9 GB",
            6_738_415_616,
            (_gptq_elements(),),
            "model.safetensors",
        ),
    )


def _deepseek(experts: int) -> Checkpoint:
    """Stored in F32 are scales, and the biases of routers, which are buffers."""
    tensors, floats, scales, biases = 0, 0, 0, 0
    for name, (dtype, shape) in deepseek_v3.tensors(experts):
        tensors += 1
        if dtype != "F32":
            floats += prod(shape)
        elif name.endswith("weight_scale_inv"):
            scales += prod(shape)
        else:
            biases += prod(shape)
    shards = f"{deepseek_v3.SHARDS} shards" if experts == deepseek_v3.EXPERTS else "fewer experts"
    title = f"DeepSeek-V3: {shards}, {tensors:,} tensors in fp8 with scales"
    return Checkpoint(DEEPSEEK, title, floats, (floats + biases + scales, floats + biases))


def _many_layers(layers: int) -> Checkpoint:
    """A BertModel whose vectors have 4 numbers: 11 words, 6 places, 2 types, 8 wide inside."""
    around = (11 + 6 + 2) * 4 + 2 * 4 + (4 * 4 + 4)
    layer = 4 * (4 * 4 + 4) + (8 * 4 + 8) + (4 * 8 + 4) + 2 * 2 * 4
    title = f"BertModel of {layers:,} layers: {SHARDS} shards, {16 * layers + 7:,} tensors in F32"
    return Checkpoint(MANY_LAYERS, title, around + layers * layer)


def _gptq_elements() -> int:
    """Of a linear (out, in): in/8 * out words, for 128 inputs out/8 words and out scales, g_idx."""

    def linear(outputs: int, inputs: int) -> int:
        groups = inputs // 128
        return inputs // 8 * outputs + groups * (outputs // 8 + outputs) + inputs

    layer = 4 * linear(4096, 4096) + 2 * linear(11_008, 4096) + linear(4096, 11_008) + 2 * 4096
    return 2 * 32_000 * 4096 + 4096 + 32 * layer
