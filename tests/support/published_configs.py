"""Configs of models whose figures somebody published: the keys that shape their tensors."""

import json
from typing import Any

from support.bert_configs import config_of
from support.programs import ROOT

from auditor.analytic import Config

VALUES: dict[str, dict[str, Any]] = json.loads(
    (ROOT / "tests" / "data" / "published_configs.json").read_bytes()
)


def published(name: str) -> Config:
    """The config of a model, by its name in tests/data/published_configs.json."""
    return config_of(**VALUES[name])
