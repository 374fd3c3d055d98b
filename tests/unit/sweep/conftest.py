"""A Hub for sweeps, and their settings."""

from support.sweep_fixtures import at_hub, settings

__all__ = ["at_hub", "settings"]
