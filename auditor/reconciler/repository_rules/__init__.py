"""Rules about companion files and about repeated statements in the config. Pure."""
