"""Containers: pure functions that parse the headers of weight files and manifests. No I/O."""
