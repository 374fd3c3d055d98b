"""What transformers itself expects: built on the meta device, in a process of its own.

`client` asks, in this process, and keeps answers on disk; `transformers_classes` reads which
classes the library has. `server` is the process; `build` makes the expectation, `loading_rules`
what belongs to loading. Only `build` and `loading_rules` import the library.
"""
