"""A published figure: what it is of, what it counts, and who published it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from auditor.analytic import Expectation, Role

# --- what a figure counts ---------------------------------------------------------------------


def parameters(expected: Expectation) -> int:
    return expected.parameters


def active(expected: Expectation) -> int:
    assert expected.active is not None
    return expected.active.parameters


def tensors(expected: Expectation) -> int:
    return sum(tensor.role is Role.PARAMETER for tensor in expected.tensors)


def modules(*prefixes: str, but: tuple[str, ...] = (), times: int = 1):
    """The parameters of some modules, without those of others that are in them."""

    def count(expected: Expectation) -> int:
        held, left_out = (
            sum(expected.modules[prefix].parameters for prefix in some) for some in (prefixes, but)
        )
        return times * (held - left_out)

    return count


def norms(expected: Expectation) -> int:
    found = [tensor for tensor in expected.tensors if ".LayerNorm." in tensor.name]
    assert len(found) == 2 * 25
    return sum(tensor.elements for tensor in found)


def file(ending: str, role: Role):
    """The parameters, and what a file holds beyond its class: tensors whose names end so."""

    def count(expected: Expectation) -> int:
        beyond = [tensor for tensor in expected.tensors if tensor.name.endswith(ending)]
        assert {tensor.role for tensor in beyond} == {role}
        return expected.parameters + sum(tensor.elements for tensor in beyond)

    return count


def in_bytes(width: int, *, also: int = 0):
    """The size of the parameters, and of as many more that are stored without being any."""
    return lambda expected: width * (expected.parameters + also)


def with_old_buffers(width: int, **widths: float):
    """The size of the parameters and of the buffers that an old version stored."""

    def count(expected: Expectation) -> float:
        size: float = width * expected.parameters
        beyond: set[str] = set()
        for tensor in expected.tensors:
            if tensor.role is Role.LEGACY:
                kind = tensor.name.rpartition(".")[2]
                size += widths[kind] * tensor.elements
                beyond.add(kind)
        assert beyond == set(widths)
        return size

    return count


def millions(digits: int):
    return lambda expected: round(expected.parameters / 1e6, digits)


def without_the_frozen(expected: Expectation) -> int:
    """DETR's training leaves the stem and the first layer of its ResNet as they are."""
    resnet = "model.backbone.conv_encoder.model"
    return expected.parameters - modules(f"{resnet}.conv1", f"{resnet}.layer1")(expected)


# --- who published it -------------------------------------------------------------------------

HUB = "elements of the Hub's files"
HALF_INDEX = "half the total_size of its index, of two bytes a parameter"
INDEX = "total_size of its index"
BY_HAND_A = "a count by hand of bert-base-uncased"
BY_HAND_B = "a second count by hand of bert-base-uncased"
BY_HAND_C = "a count by hand of a large Chinese BERT, layer by layer"
BY_HAND_D = "a count by hand of bert-base-chinese as a masked language model"
BY_HAND_E = "a count by hand of bert-base-chinese from its config"
OPENAI = "the count of OpenAI's own model"
TORCHVISION = "num_params of torchvision's weights"
SUPERB = "SUPERB, https://arxiv.org/abs/2105.01051"


class Published(NamedTuple):
    """A figure, and what it is of."""

    model: str  # its config is published(model)
    target: str
    figure: float
    source: str
    count: Callable[[Expectation], float] = parameters


# --- sizes of models of diffusers and timm --------------------------------------------------------

# A line for each model: its config, the published figure, the unit to which it is rounded (1 if it
# is exact), and where it was read. No figure is a result of this package.
SIZES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "published_sizes.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]
