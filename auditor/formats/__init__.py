"""Formats: pure functions of reports. Names are untrusted, and each format escapes them."""

from msgspec import Struct


class View(Struct, frozen=True, kw_only=True):
    """The options of formats for people; formats for machines contain everything."""

    depth: int = 2  # of the module table
    width: int = 80  # columns of the terminal
    color: bool = False
    verbose: bool = False  # every name, every module, the formula, the sources
    ascii_only: bool = False  # for terminals without other characters
    printed: bool = False  # on standard output, which has room for one table
