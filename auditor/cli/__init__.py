"""The command line: the only code that prints, reads the environment or exits.

A function with the name of a command is that command: typer takes its options from the signature.
"""

import os

_TOO_LITTLE_MEMORY = b"audit: too little memory: the program itself cannot be loaded\n"
_UNAUDITED = 3  # the exit code; console.py, which has all of them, is loaded later


def main() -> None:
    """Run `audit`. Signals are handled before anything is imported that takes time."""
    try:
        from auditor.cli.signals import Stopped, heed  # noqa: PLC0415 - as below

        heed()
        try:
            from auditor.cli.app import main as run  # noqa: PLC0415 - 0.1 s

            run()
        except Stopped as signal:  # before a command had begun, or after it had ended
            os._exit(signal.code)
    except MemoryError:
        os.write(2, _TOO_LITTLE_MEMORY)
        os._exit(_UNAUDITED)
