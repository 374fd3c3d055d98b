"""A Hub for the sweeps of law 8."""

from support.sweep_fixtures import at_hub

__all__ = ["at_hub"]
