"""`audit fix`: change headers, index and config as a diagnosis proposes, never weights.

A plan is made in memory (`plan.py`: steps on a snapshot, audited after each round), printed, and
then written as a complete new folder (`new_folder.py`). The folder that it mends stays as it is.
"""
