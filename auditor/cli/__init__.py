"""The command line: the only code that prints or exits.

The function of a command has the command's name; typer takes the options from its signature.
"""

import os

_TOO_LITTLE_MEMORY = b"audit: too little memory: the program itself cannot be loaded\n"
_UNAUDITED = 3  # an exit code; console.py, which has all exit codes, is loaded later


def main() -> None:
    """Run `audit`; set up the handling of signals before imports that take time."""
    try:
        from auditor.cli.signals import Stopped, heed  # noqa: PLC0415 - as below

        heed()
        try:
            from auditor.cli.app import main as run  # noqa: PLC0415 - 0.1 s

            run()
        except Stopped as signal:  # a signal before the command began, or after it ended
            os._exit(signal.code)
    except MemoryError:
        os.write(2, _TOO_LITTLE_MEMORY)
        os._exit(_UNAUDITED)
