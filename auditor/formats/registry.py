"""The formats of `audit --format`: a format is one module here, and one line of FORMATS.

The option, the file endings for `-o`, the help text and the README are made from FORMATS.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import NamedTuple, Protocol, cast

from auditor.formats import View
from auditor.report import Report, Unaudited


class FormatModule(Protocol):
    """The interface of a format's module."""

    def files(self, outcomes: Sequence[Report | Unaudited], view: View, /) -> Mapping[str, str]:
        """Map file names to texts, to be written as UTF-8 without translating line ends."""


class Format(NamedTuple):
    """An output format; its module is imported at the first use."""

    module: str  # the name of a module in this package
    endings: tuple[str, ...]  # file endings for -o; (): -o names a folder
    meaning: str  # for the help text and the README

    def load(self) -> FormatModule:
        return cast("FormatModule", import_module(f"auditor.formats.{self.module}"))

    def __call__(self, outcomes: Sequence[Report | Unaudited], view: View) -> Mapping[str, str]:
        return self.load().files(outcomes, view)


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        "terminal": Format("terminal", (".txt",), "tables for people"),
        "json": Format(
            "as_json", (".json", ".jsonl"), "one object a model, each on a line; also called jsonl"
        ),
        "agent": Format(
            "as_agent", (".agent",), "verdict, cause and fix command, a line of JSON a model"
        ),
        "markdown": Format("as_markdown", (".md",), "a comment for a pull request"),
        "html": Format("as_html", (".html",), "a page that needs no network"),
        "svg": Format("as_svg", (".svg",), "a drawing of where the parameters are"),
        "badge": Format(
            "as_badge", (".badge",), "a small drawing for a model card: tensors 202/202"
        ),
        "sarif": Format("as_sarif", (".sarif",), "for pages of code-scanning results"),
        "github": Format(
            "as_github",
            (),
            "annotations of files in GitHub Actions; with -o a folder of all reports",
        ),
        "cyclonedx": Format("as_cyclonedx", (".cdx",), "a bill of materials, ML-BOM 1.6"),
        "csv": Format("as_csv", (), "a folder of tables, whose modules.csv is printed"),
    }
)
TERMINAL = "terminal"  # the default
MATERIALS = "cyclonedx"  # the only format that needs local files read completely


def by_ending(ending: str) -> str | None:
    """Return the name of the format for files with this ending, else None."""
    return next((name for name, form in FORMATS.items() if ending in form.endings), None)
