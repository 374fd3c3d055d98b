"""Findings of numbers, one file a cause or kin; each rule is a function of the Evidence."""
