"""Containers: pure functions from the first bytes of a file to what it declares. No I/O."""
