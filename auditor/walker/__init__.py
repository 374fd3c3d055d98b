"""Tallies of stored tensors: by module prefix at any depth, by dtype, by file."""

from auditor.walker.tally import Counted, Shallow, Tally, Walk, depth_within, parent, walk

__all__ = ["Counted", "Shallow", "Tally", "Walk", "depth_within", "parent", "walk"]
