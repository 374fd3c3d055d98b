"""Closed forms of diffusers' classes, whose configs name a `_class_name` and no model type.

The builders follow the constructors of diffusers 0.42. A value that a builder does not cover
raises SourceError with its key; so does a key that the class does not have in that version.
"""

from collections.abc import Mapping
from types import MappingProxyType

from auditor.analytic.blocks import Module
from auditor.analytic.config import Config
from auditor.analytic.diffusion import (
    autoencoder_kl,
    hidream,
    pixart,
    prior_transformer,
    stable_cascade,
    t2i_adapter,
    transformers,
    unet,
    unet_2d,
    video_unets,
    video_vaes,
)
from auditor.analytic.diffusion.keys import LibraryForm, outside, stated_keys
from auditor.analytic.expectation import Expectation
from auditor.analytic.tree_expectation import tree_expectation
from auditor.errors import Reason, SourceError
from auditor.messages import quoted

_MODULES = (
    *(autoencoder_kl, hidream, pixart, prior_transformer, stable_cascade, t2i_adapter),
    *(transformers, unet, unet_2d, video_unets, video_vaes),
)
CLASSES: Mapping[str, LibraryForm] = MappingProxyType(
    {name: form for each in _MODULES for name, form in each.CLASSES.items()}
)

# Keys that trainings and older versions wrote, and that shape no tensor: an average's settings.
_IGNORED = frozenset(
    {
        *("decay", "inv_gamma", "min_decay", "min_value", "optimization_step", "power"),
        *("update_after_step", "use_ema_warmup"),
    }
)


def expect_diffusers(config: Config, target: str) -> Expectation:
    """Return every tensor that a component's config implies for a class of diffusers.

    Raise the errors of `component_tree`.
    """
    completed, tree = _completed(config, target)
    loading = CLASSES[target].loading
    return tree_expectation(tree, target, loading=loading, defaults=completed.defaulted)


def component_tree(config: Config, target: str) -> Module:
    """Return the tree of blocks that a component's config implies for a class of diffusers.

    Raise SourceError for a class, a key or a value without a closed form, and CheckpointError for
    a value of a wrong type.
    """
    return _completed(config, target)[1]


def _completed(config: Config, target: str) -> tuple[Config, Module]:
    form = CLASSES.get(target)
    if form is None:
        detail = f"no closed form is known for {quoted(target)}, a class of diffusers"
        raise SourceError(Reason.UNKNOWN_ARCHITECTURE, detail)
    completed = config.of(form.family)
    for key in stated_keys(config.values):
        if key not in form.family.defaults and key not in _IGNORED:
            raise outside(completed, key)
    return completed, form.build(completed)  # the tree reads the keys: `defaulted` follows it


def with_defaults(values: Mapping[str, object]) -> Mapping[str, object]:
    """Return a config with the defaults of its class, if the class has a closed form."""
    name = values.get("_class_name")
    form = CLASSES.get(name) if isinstance(name, str) else None
    return {**form.family.defaults, **values} if form else values
