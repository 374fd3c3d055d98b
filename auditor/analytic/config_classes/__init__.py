"""transformers' config classes, imitated: how they complete a config, and what they refuse."""

from auditor.analytic.config_classes.base import config_rules, settle
from auditor.analytic.config_classes.facts import ConfigClass, library, of_model_type, worded
from auditor.analytic.config_classes.faults import Blame, Fault, FaultyConfigError
from auditor.analytic.config_classes.settled import Settled

__all__ = [
    "Blame",
    "ConfigClass",
    "Fault",
    "FaultyConfigError",
    "Settled",
    "config_rules",
    "library",
    "of_model_type",
    "settle",
    "worded",
]
