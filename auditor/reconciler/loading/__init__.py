"""What from_pretrained makes of the stored tensors: names, forms, and its load report."""
