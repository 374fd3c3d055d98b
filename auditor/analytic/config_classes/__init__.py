"""transformers' config classes, imitated: how they complete a config, and what they refuse."""

from auditor.analytic.config_classes.base import config_rules, settle
from auditor.analytic.config_classes.completed import Settled
from auditor.analytic.config_classes.declarations import (
    ConfigClass,
    fault_sentence,
    library,
    of_model_type,
)
from auditor.analytic.config_classes.faults import Blame, ConfigFault, FaultyConfigError

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
