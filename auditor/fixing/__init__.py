"""`audit fix`: carries out what a diagnosis says about headers, index and config, never weights.

A plan is made in memory (`plan.py`: steps on a snapshot, audited after each round), printed, and
then carried out (`carrying_out.py`, by a journal): each file is replaced as a whole, or not at all.
A record of it is left in the folder, by which `undo.py` puts the old files back.
"""
