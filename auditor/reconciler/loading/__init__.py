"""The simulation of from_pretrained: forms of stored tensors, and the load report."""
