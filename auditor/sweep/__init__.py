"""Nightly sweeps: select models, audit them, store the outcomes, resume after a stop."""
