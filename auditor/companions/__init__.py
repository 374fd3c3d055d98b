"""The companion files: tokenizers, generation configs, templates, processors. Pure.

Bytes -> values, bounded, and nothing is executed: a vocabulary is read for its highest id, a chat
template is parsed and never rendered.
"""
