"""The oracle: transformers' own expectation, built on the meta device in a separate process.

`client` sends questions from this process and caches answers on disk; `transformers_classes` reads
the library's classes. `server` is the process; `build` makes the expectation, `loading_rules` its
loading rules. Only `build` and `loading_rules` import the library.
"""
