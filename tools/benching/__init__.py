"""The parts of tools/bench.py: the models, the server that has them, the runs, the tables."""
