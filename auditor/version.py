"""The version of this package; importlib.metadata would take 10 ms to find it."""

VERSION = "0.1.0"
