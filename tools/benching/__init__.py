"""The parts of tests/bench.py: the models, the server that has them, the runs, the tables."""
