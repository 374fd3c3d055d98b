"""The snapshot of a checkpoint, and the files of a listing that belong together. Pure."""
