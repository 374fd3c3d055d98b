"""The comparison by kinds of names, in a millisecond: one tensor represents all of its kind."""
