"""Arguments that a class takes beside its config: BertModel(config, add_pooling_layer=False).

They stand in no config.json: `from_pretrained` is given them. A closed form has them where its
builder has the option that each stands for.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar, cast

_Builder = TypeVar("_Builder", bound=Callable[..., Any])

# Of transformers' constructors -> the builder's own option.
OPTIONS: Mapping[str, str] = MappingProxyType(
    {"add_pooling_layer": "pooler", "use_mask_token": "mask"}
)
# Taken, and without a tensor: Swin's pooling is an average.
WITHOUT_TENSORS = frozenset({("SwinModel", "add_pooling_layer")})


def takes_option(build: Callable[..., Any], argument: str) -> bool:
    return OPTIONS[argument] in inspect.signature(build).parameters


def with_arguments(build: _Builder, arguments: Mapping[str, bool]) -> _Builder:
    """The builder with those of the arguments that it takes."""
    taken = {OPTIONS[name]: value for name, value in arguments.items() if takes_option(build, name)}
    return cast("_Builder", partial(build, **taken)) if taken else build
