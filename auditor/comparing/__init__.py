"""Two checkpoints beside each other: what one has that the other has not."""
