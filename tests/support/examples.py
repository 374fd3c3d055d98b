"""How many examples a law is tried over: its own number, or a quick run's share of it."""

from hypothesis import settings

USUAL = 100  # hypothesis' own number, which the profile of a quick run lowers


def examples(count: int) -> settings:
    """For a law that has a number of its own; at least one."""
    return settings(max_examples=max(1, count * settings.default.max_examples // USUAL))
