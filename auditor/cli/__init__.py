"""The command line: the only code that prints, reads the environment or exits.

A function of the name of a command is that command: typer takes its options from the signature.
"""

import os


def main() -> None:
    """Run `audit`. The processes of a sweep load this too, and nothing of what it imports."""
    from auditor.cli.signals import Stopped, heed  # noqa: PLC0415 - as below

    heed()
    try:
        from auditor.cli.app import main as run  # noqa: PLC0415 - 40 ms that those processes save

        run()
    except Stopped as signal:  # before there was anything to say, or after all was said
        os._exit(signal.code)
