"""`audit fix`: change headers, index and config as a diagnosis proposes, never weights.

A plan is made in memory (`plan.py`: steps on a snapshot, audited after each round), printed, and
then carried out (`carrying_out.py`, with a journal): each file is replaced completely or not at
all. A record of the fix stays in the folder; `undo.py` uses it to put the old files back.
"""
