"""Snapshots of models that ship with the package, and what config classes declare."""
