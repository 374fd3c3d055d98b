"""Rules about what stands beside the weights, and about what the config says twice. Pure."""
