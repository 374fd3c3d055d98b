"""Claims: a count that somebody published, confirmed, or refuted with the slip that explains it."""
