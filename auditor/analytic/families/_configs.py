"""Derived defaults that several config classes share."""

from typing import Any

from auditor.analytic.config_classes import CompletedConfig


def key_value_heads(config: CompletedConfig, others: dict[str, Any]) -> None:
    """Set num_key_value_heads to the number of query heads if the config's value is null."""
    del others
    if config["num_key_value_heads"] is None:
        config.set("num_key_value_heads", config["num_attention_heads"])


def head_dim(config: CompletedConfig, others: dict[str, Any]) -> None:
    """Set num_key_value_heads, and head_dim to D/H rounded down, if the config has null."""
    key_value_heads(config, others)
    if config["head_dim"] is None:
        config.set("head_dim", config["hidden_size"] // config["num_attention_heads"])
