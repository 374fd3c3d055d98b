"""The descriptions of all causes, read from the docstrings of their modules.

The docstring of a module of `causes/` begins with `CAUSE: DESCRIPTION.`. A module with several
causes has a paragraph for each, or begins with `ONE and OTHER: ...`. The remedy is the paragraph
`To do:`.
"""

import re
import sys
from collections.abc import Iterator, Mapping

from auditor.diagnosis.causes import custom_code
from auditor.diagnosis.engine import CAUSES

_NAME = r"[a-z]+(?:-[a-z]+)*"
_NAMES = re.compile(rf"{_NAME}(?:, {_NAME})*(?: and {_NAME})?(?=: )")


def described_causes() -> Mapping[str, str]:
    """Return the description of each cause, in the order in which causes are tested."""
    tested = dict.fromkeys(sys.modules[undoings.__module__] for undoings in CAUSES)
    modules = (*tested, custom_code)
    return {name: text for module in modules for name, text in _described(module.__doc__ or "")}


def _described(docstring: str) -> Iterator[tuple[str, str]]:
    """Yield (cause, description) of one module; paragraphs after the last cause describe all."""
    first, *others = docstring.split("\n\n")
    heads = [first, *(one for one in others if "-" in _names(one))]
    shared = [one for one in others if one not in heads]
    for head in heads:
        names = _names(head)
        meaning = head[len(names) + 2 :]
        text = "\n\n".join((f"{meaning[:1].upper()}{meaning[1:]}", *shared))
        for name in re.split(", | and ", names) if names else ():
            yield name, text


def _names(paragraph: str) -> str:
    match = _NAMES.match(paragraph)
    return match[0] if match else ""
