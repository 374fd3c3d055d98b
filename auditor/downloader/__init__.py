"""Read the config, index and headers of a checkpoint, from the Hub or this machine.

Each source is a module with a function `read`, which returns the Snapshot of a model or raises
SourceError: hub, local_folder (and the Hugging Face cache), bundled. `fetching.fetch` chooses one.
"""
