"""Nightly sweeps: which models, what was found of each, and how to go on where it stopped."""
