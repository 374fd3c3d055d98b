"""The oracle: the tensors of transformers' own model, built on the meta device in another process.

`client` sends questions to that process and caches answers on disk; `transformers_classes` reads
the library's classes. `server` runs in the process; `build` makes the expectation (the tensors that
a config implies), `loading_rules` its loading rules. Only these two import the library.
"""
