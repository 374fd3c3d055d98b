"""What several config classes of transformers do alike beside what all of them do."""

from typing import Any

from auditor.analytic.config_classes import Settled, layers
from auditor.analytic.config_classes.completed import Hook
from auditor.messages import described

SLIDING, FULL = "sliding_attention", "full_attention"


def each(*hooks: Hook) -> Hook:
    """One after the other."""

    def all_of_them(config: Settled, others: dict[str, Any]) -> None:
        for hook in hooks:
            hook(config, others)

    return all_of_them


def key_value_heads(config: Settled, others: dict[str, Any]) -> None:
    """As many as there are queries, where nothing is said."""
    del others
    if config["num_key_value_heads"] is None:
        config.set("num_key_value_heads", config["num_attention_heads"])


def head_dim(config: Settled, others: dict[str, Any]) -> None:
    """The width over the heads, rounded down, where nothing is said."""
    del others
    if config["head_dim"] is None:
        with config.working_with("hidden_size", "num_attention_heads"):
            config.set("head_dim", config["hidden_size"] // config["num_attention_heads"])


def even_heads(config: Settled, others: dict[str, Any]) -> None:
    """The heads share the width without a rest."""
    del others
    keys = ("hidden_size", "num_attention_heads")
    with config.working_with(*keys):
        if config["hidden_size"] % config["num_attention_heads"]:
            width, heads = (config.shown(key) for key in keys)
            config.refuse(f"{width} is not a multiple of {heads}", *keys)


def partly_turned(share: float) -> Hook:
    """So much of a head turns, where nothing is said."""

    def hook(config: Settled, others: dict[str, Any]) -> None:
        del config
        others.setdefault("partial_rotary_factor", share)

    return hook


def every(count: int, key: str | None = None, other: str = SLIDING) -> Hook:
    """In each group of `count` layers the last one sees all, and the others see only a window.

    `key`: the config's own key for that count; `other`: the type of the other layers.
    """

    def hook(config: Settled, others: dict[str, Any]) -> None:
        if config["layer_types"] is not None:
            return
        number = others.pop(key, count) if key else count
        if not isinstance(number, int | float) or not number:
            config.refuse(
                f"{config.path}{key} is {described(number)}, expected an integer", key or ""
            )
            number = count
        layers.fill_layer_types(config, lambda n: other if (n + 1) % number else FULL)

    return hook


def windows_from_above(config: Settled, others: dict[str, Any]) -> None:
    """If the config has a window, the layers from `max_window_layers` on see only that window."""
    del others
    if not config["use_sliding_window"]:
        config.set("sliding_window", None)
    window, first = config["sliding_window"], config["max_window_layers"]
    layers.fill_layer_types(
        config, lambda n: SLIDING if window is not None and n >= first else FULL
    )
