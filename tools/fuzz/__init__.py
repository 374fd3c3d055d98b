"""Fuzzers with seeds: hostile bytes, each held to a judge that is not this project's.

`make fuzz` runs each for a minute; `make fuzz ARGS='torch-files --runs 200000'` one at length.
"""
