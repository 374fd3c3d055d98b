"""Names of tensors and files: their parts, kinds of names, and folded names for people."""
