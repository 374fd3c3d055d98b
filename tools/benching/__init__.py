"""The bench: the models, the server that has them, the runs, the tables."""
