"""What is read of a checkpoint, and which files of a listing belong together. Pure."""
