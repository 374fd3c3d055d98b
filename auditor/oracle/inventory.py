"""The inventory of a class of transformers, diffusers or timm: one function for all libraries."""

import warnings
from collections.abc import Mapping
from typing import Any

from auditor.analytic import Expectation
from auditor.oracle import build, diffusers_models, timm_models


def inventory(library: str, target: str, config: Mapping[str, Any]) -> Expectation:
    """Return the tensors that the library writes for a model of this class and config.

    Raise UsageError if the library is not installed, SourceError for a class that it does not have
    or cannot build here, and CheckpointError for a config from which the class cannot be built.
    """
    builders = {
        "diffusers": diffusers_models.build_expectation,
        "timm": timm_models.build_expectation,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return builders.get(library, build.build_expectation)(config, target)
