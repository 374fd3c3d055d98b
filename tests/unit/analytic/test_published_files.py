"""The sizes of published files: the tensors that their configs imply, and a header."""

from collections.abc import Callable
from math import ceil
from typing import NamedTuple

import pytest
from support.published_configs import published
from support.published_figures import tensors

from auditor.analytic import Expectation, catalogue


class PublishedFile(NamedTuple):
    """The size of a file on the Hub, or of several: its tensors, and bytes around each of them."""

    model: str
    target: str
    size: int
    stored: Callable[[Expectation], tuple[int, int]]  # how many bytes and tensors
    around: tuple[int, int] = (110, 140)  # bytes of a header for each tensor, in healthy files


def plain(width: int):
    return lambda expected: (width * expected.parameters, tensors(expected))


UNPACKED = ("embed_tokens.weight", "head.weight", ".gate.weight", "eh_proj.weight")


def in_fp8(expected: Expectation) -> tuple[int, int]:
    """With a scale in F32 for 128 x 128 numbers, all that a layer multiplies by.

    The rest is in BF16, the routers' corrections in F32.
    """
    size, count = 0, 0
    for tensor in expected.tensors:
        packed = len(tensor.shape) == 2 and not tensor.name.endswith(UNPACKED)
        scales = ceil(tensor.shape[0] / 128) * ceil(tensor.shape[-1] / 128) if packed else 0
        width = 1 if packed else 2 if tensor.role.learned else 4
        size += tensor.elements * width + 4 * scales
        count += 1 + bool(scales)
    return size, count


FILES = (
    # The bias of the logits, which a class of today would store, too, is not in this one:
    # 4 * 50264 bytes more would be more than the file has.
    PublishedFile("bart-large-cnn", "BartForConditionalGeneration", 1_625_222_120, plain(4)),
    PublishedFile("whisper-medium", "WhisperForConditionalGeneration", 3_055_544_304, plain(4)),
    # A pickle, which adds some hundred bytes for each of 388 tensors.
    PublishedFile("opt-1.3b", "OPTForCausalLM", 2_631_639_353, plain(2), (0, 500)),
    # 163 files, with one layer for drafting beside its class.
    PublishedFile("deepseek-ai/DeepSeek-R1", "DeepseekV3ForCausalLM", 688_586_727_753, in_fp8),
)


@pytest.mark.parametrize("row", FILES, ids=[row.model for row in FILES])
def test_a_published_file_is_its_tensors_and_a_header(row: PublishedFile) -> None:
    size, count = row.stored(catalogue.expect(published(row.model), row.target))
    least, most = row.around
    assert least * count < row.size - size < most * count
