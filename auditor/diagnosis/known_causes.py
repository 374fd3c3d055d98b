"""The causes that can be named, and where each is described: the docstring of its module.

A module of `causes/` begins with `CAUSE: what it looks like.`, several causes with a paragraph each
or with `ONE and OTHER: ...`; what to do is a paragraph `To do:`.
"""

import re
import sys
from collections.abc import Iterator, Mapping

from auditor.diagnosis.causes import custom_code
from auditor.diagnosis.engine import CAUSES

_NAME = r"[a-z]+(?:-[a-z]+)*"
_NAMES = re.compile(rf"{_NAME}(?:, {_NAME})*(?: and {_NAME})?(?=: )")


def described_causes() -> Mapping[str, str]:
    """What the docstrings say of each cause, in the order in which causes are looked for."""
    tested = dict.fromkeys(sys.modules[undoings.__module__] for undoings in CAUSES)
    modules = (*tested, custom_code)
    return {name: said for module in modules for name, said in _described(module.__doc__ or "")}


def _described(docstring: str) -> Iterator[tuple[str, str]]:
    """The causes of one module; what follows the last of their paragraphs holds for all."""
    first, *others = docstring.split("\n\n")
    heads = [first, *(one for one in others if "-" in _names(one))]
    shared = [one for one in others if one not in heads]
    for head in heads:
        names = _names(head)
        meaning = head[len(names) + 2 :]
        said = "\n\n".join((f"{meaning[:1].upper()}{meaning[1:]}", *shared))
        for name in re.split(", | and ", names) if names else ():
            yield name, said


def _names(paragraph: str) -> str:
    found = _NAMES.match(paragraph)
    return found[0] if found else ""
