"""What transformers itself expects: built on the meta device, in a process of its own.

`build` makes the expectation, `rules` what belongs to loading, `answer` its JSON, and `serving` is
the process. Only `build` and `rules` import the library, and late.
"""
