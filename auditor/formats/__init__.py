"""Formats: pure functions of reports. Names come from strangers, and each format escapes them."""

from msgspec import Struct


class View(Struct, frozen=True, kw_only=True):
    """The options of formats for people; formats for machines always give everything."""

    depth: int = 2  # of the module table
    width: int = 80  # columns of the terminal
    color: bool = False
    verbose: bool = False  # every name, every module, the formula, where it all comes from
    ascii_only: bool = False  # for terminals that have no other characters
    printed: bool = False  # to standard output, which takes one table: 90,000 tensors need 3 s
