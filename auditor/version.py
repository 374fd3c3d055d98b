"""The version of this package; importlib.metadata would take 10 ms to look it up."""

VERSION = "0.1.0"
