"""The command line: the only code that prints, reads the environment or exits."""

from auditor.cli.app import main

__all__ = ["main"]
