"""Hostile files, each audited by a process of its own: what it says, costs and leaves behind."""
