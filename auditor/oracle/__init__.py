"""The oracle: the tensors of a library's own model, built on the meta device in another process.

`client` sends questions to that process and caches answers on disk; `transformers_classes` reads
the library's classes. `server` runs in the process; `inventory` makes the expectation (the tensors
that a config implies) for diffusers and timm, and by `build` for transformers, whose loading rules
`loading_rules` reads. Only these import a library.
"""
