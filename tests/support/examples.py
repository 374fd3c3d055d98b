"""The number of examples that a law is tried over: its own, scaled by the kind of the run."""

from hypothesis import settings

USUAL = 100  # hypothesis' own number, to which the numbers of laws refer


def examples(count: int) -> settings:
    """Return the settings of a law with a number of its own; at least one example."""
    return settings(max_examples=max(1, count * settings.default.max_examples // USUAL))
