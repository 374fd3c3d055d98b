"""Config, index and headers of a checkpoint, from the Hub, this machine or a snapshot file: I/O.

Each source is a module with a function `read`, which returns the Snapshot of a model or raises
SourceError: hub, local_folder (and the Hugging Face cache), bundled. `fetching.fetch` chooses one.
"""
