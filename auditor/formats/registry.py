"""The formats of `audit --format`: a format is one module here, and one line of FORMATS.

The option, the file endings for `-o`, the help text and the README are made from FORMATS.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Protocol, cast

from msgspec import Struct

from auditor.formats import View
from auditor.report import Report, Unaudited


class FormatModule(Protocol):
    """The interface of a format's module."""

    def files(self, outcomes: Sequence[Report | Unaudited], view: View, /) -> Mapping[str, str]:
        """Map file names to texts, to be written as UTF-8 without translating line ends."""


class Format(Struct, frozen=True, kw_only=True):
    """An output format; its module is imported at the first use."""

    module: str  # the name of a module in this package
    meaning: str  # for the help text and the README
    endings: tuple[str, ...] = ()  # file endings for -o; (): -o names a folder

    def load(self) -> FormatModule:
        return cast("FormatModule", import_module(f"auditor.formats.{self.module}"))

    def __call__(self, outcomes: Sequence[Report | Unaudited], view: View) -> Mapping[str, str]:
        return self.load().files(outcomes, view)


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "terminal": Format(module="terminal", endings=(".txt",), meaning="tables for people"),
        "json": Format(
            module="as_json",
            endings=(".json", ".jsonl"),
            meaning="one object a model, each on a line; also called jsonl",
        ),
        "markdown": Format(
            module="as_markdown", endings=(".md",), meaning="a comment for a pull request"
        ),
        "html": Format(
            module="as_html", endings=(".html",), meaning="a page that needs no network"
        ),
        "svg": Format(
            module="as_svg", endings=(".svg",), meaning="a drawing of where the parameters are"
        ),
        "badge": Format(
            module="as_badge",
            endings=(".badge",),
            meaning="a small drawing for a model card: tensors 202/202",
        ),
        "sarif": Format(
            module="as_sarif", endings=(".sarif",), meaning="for pages of code-scanning results"
        ),
        "github": Format(
            module="as_github",
            meaning="annotations of files in GitHub Actions; with -o a folder of all reports",
        ),
        "cyclonedx": Format(
            module="as_cyclonedx", endings=(".cdx",), meaning="a bill of materials, ML-BOM 1.6"
        ),
        "csv": Format(module="as_csv", meaning="a folder of tables, whose modules.csv is printed"),
    }
)
TERMINAL = "terminal"  # the default
MATERIALS = "cyclonedx"  # the only format that needs local files read completely


def by_ending(ending: str) -> str | None:
    """Return the name of the format for files with this ending, else None."""
    return next((name for name, form in FORMATS.items() if ending in form.endings), None)
