"""What an adapter may be put on: the closed forms know each layer for what transformers builds."""

import re
from importlib import import_module

import pytest
from support.bert_configs import config_of
from support.examples import one_in
from support.strategies.common import four_layers

from auditor.analytic import catalogue
from auditor.analytic.adapters import AdaptedModel, base_model_forms
from auditor.analytic.blocks import Layer
from auditor.analytic.families import FILES
from auditor.oracle import build

pytestmark = pytest.mark.oracle

# Linear layers in transformers 4, which adapters of its time are put on; classes of their own now.
ROUTERS = re.compile(r"\.(gate|router)$")
# Models of papers alone, which transformers does not have.
MODEL_TYPES = [each for each in catalogue.model_types() if each != "transformer-2017"]


def built(model_type: str):
    """What transformers builds of the base class, and our forms of it."""
    module = import_module(f"support.strategies.{FILES[model_type]}")
    least = getattr(module, "LEAST", {})
    values = least[model_type] if model_type in least else four_layers(model_type)
    values = {**values, "model_type": model_type}
    target, config = catalogue.base_class(model_type), config_of(**values)
    library = build._library()  # noqa: SLF001 - the way in which the oracle builds
    model = build._build(build._model_class(library, target), values)  # noqa: SLF001 - likewise
    return model, base_model_forms(
        catalogue.expect(config, target), catalogue.block_tree(config, target)
    )


def of_library(model) -> dict[str, tuple[str, int, int]]:
    """Module -> its kind, and what it makes of what."""
    from torch import nn  # noqa: PLC0415 - only with the oracle
    from transformers.pytorch_utils import Conv1D  # noqa: PLC0415 - likewise

    found = {}
    for path, each in model.named_modules(remove_duplicate=False):
        match each:
            case nn.Embedding():
                found[path] = ("embedding", each.num_embeddings, each.embedding_dim)
            case nn.Linear():
                found[path] = ("linear", each.in_features, each.out_features)
            case Conv1D():
                found[path] = ("linear", *each.weight.shape)
            case nn.Conv1d() | nn.Conv2d() | nn.Conv3d():
                if each.groups == 1 and each.in_channels > 1:  # one input: may be in groups
                    found[path] = ("convolution", each.in_channels, each.out_channels)
    return found


def of_closed_form(base: AdaptedModel) -> dict[str, tuple[str, int, int]]:
    found = {}
    for path, part in base.parts.items():
        size = part.size()
        if size is not None:
            kind = "embedding" if part.layer is Layer.EMBEDDING else "linear"
            found[path] = ("convolution" if size.kernel else kind, size.inputs, size.outputs)
    return found


@pytest.mark.parametrize("model_type", one_in(3, MODEL_TYPES))
def test_every_layer_has_the_kind_and_size_of_the_library(model_type):
    model, bases = built(model_type)
    observed = of_library(model)
    differ = []
    for base in bases:
        expected = of_closed_form(base)
        items = observed.items() ^ expected.items()
        differ.append({item for item in items if not ROUTERS.search(item[0])})
    assert set() in differ, min(differ, key=len)
