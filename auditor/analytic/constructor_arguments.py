"""Arguments that a class takes beside its config: BertModel(config, add_pooling_layer=False).

They are passed to `from_pretrained` and are not in config.json. A closed form supports one if its
builder has the matching option.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, TypeVar, cast

_Builder = TypeVar("_Builder", bound=Callable[..., Any])

# Argument of a constructor in transformers -> option of the builder.
OPTIONS: Mapping[str, str] = MappingProxyType(
    {"add_pooling_layer": "pooler", "use_mask_token": "mask"}
)
# (class, argument) pairs that change no tensor: Swin's pooling is an average.
WITHOUT_TENSORS = frozenset({("SwinModel", "add_pooling_layer")})


def takes_option(build: Callable[..., Any], argument: str) -> bool:
    return OPTIONS[argument] in inspect.signature(build).parameters


def with_arguments(build: _Builder, arguments: Mapping[str, bool]) -> _Builder:
    """Return the builder with the arguments that it supports applied."""
    taken = {OPTIONS[name]: value for name, value in arguments.items() if takes_option(build, name)}
    return cast("_Builder", partial(build, **taken)) if taken else build
