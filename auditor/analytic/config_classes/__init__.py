"""transformers' config classes, imitated: how they complete a config, and what they refuse."""

from auditor.analytic.config_classes.base import config_rules, settle
from auditor.analytic.config_classes.completed import (
    Blame,
    ConfigFault,
    FaultyConfigError,
    Settled,
    fault_sentence,
)
from auditor.analytic.config_classes.declarations import ConfigClass, library, of_model_type

__all__ = [
    "Blame",
    "ConfigClass",
    "ConfigFault",
    "FaultyConfigError",
    "Settled",
    "config_rules",
    "fault_sentence",
    "library",
    "of_model_type",
    "settle",
]
