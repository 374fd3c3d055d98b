"""The comparison of an index with its files and with the expectation."""
