"""Faults that are planted in checkpoints, and what an audit says of them: `make diagnose`."""
