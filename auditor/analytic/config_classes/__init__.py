"""Facts about transformers' config classes: declarations, completed configs, common mistakes."""

from auditor.analytic.config_classes.completion import (
    VALUE_ERRORS,
    CompletedConfig,
    complete,
    derived_defaults,
    derived_keys,
)
from auditor.analytic.config_classes.declarations import (
    ConfigClass,
    library,
    of_model_type,
    other_activations,
    words_of_any_class,
)
from auditor.analytic.config_classes.faults import (
    ConfigFault,
    FaultOrigin,
    FaultyConfigError,
    fault_sentence,
    one_per_cause,
)

__all__ = [
    "VALUE_ERRORS",
    "CompletedConfig",
    "ConfigClass",
    "ConfigFault",
    "FaultOrigin",
    "FaultyConfigError",
    "complete",
    "derived_defaults",
    "derived_keys",
    "fault_sentence",
    "library",
    "of_model_type",
    "one_per_cause",
    "other_activations",
    "words_of_any_class",
]
