"""The snapshot of a checkpoint, and the selection of a repository's files to read. No I/O."""
