"""The command line: the only code that prints, reads the environment or exits."""


def main() -> None:
    """Run `audit`. The processes of a sweep load this too, and nothing of what it imports."""
    from auditor.cli.app import main as run  # noqa: PLC0415 - 40 ms that those processes save

    run()
