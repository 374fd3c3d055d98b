"""The companion files of weights: tokenizers, generation configs, templates, processors. No I/O.

Untrusted bytes are parsed within bounds, and never executed: a vocabulary is read for its highest
id, a chat template is parsed and never rendered.
"""
