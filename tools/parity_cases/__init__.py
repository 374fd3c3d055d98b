"""The checkpoints that `make parity` loads, and what is said of each."""
