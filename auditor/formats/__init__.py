"""Output formats: functions from reports to text. Each escapes names, which are untrusted."""

from msgspec import Struct


class View(Struct, frozen=True, kw_only=True):
    """The options of formats that people read; other formats always contain everything."""

    depth: int = 2  # levels of the module table
    width: int = 80  # characters in a line of the terminal
    color: bool = False
    verbose: bool = False  # whether to show every name, every module, the formula, the sources
    ascii_only: bool = False  # whether the terminal shows only ASCII
    auditor: str = ""  # the version of this program; "": not stated
    date: str = ""  # of the audit, such as 2026-11-29; "": not stated
    printed: bool = False  # whether the text goes to standard output, which has room for one table
