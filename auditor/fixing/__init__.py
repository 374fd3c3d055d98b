"""`audit fix`: does what a diagnosis says where headers, index or config are wrong, no weights.

A plan is made in memory (`plan.py`: steps on a snapshot, audited after each round), shown, and only
then carried out (`carrying_out.py`, by way of a journal): each file is replaced whole, or not.
"""
