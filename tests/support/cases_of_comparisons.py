"""Cases of `diff`: two folders, and what their comparison must state."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from support.cases import Case, build, checked

from auditor import Comparison, diff

_COUNTS = {"removed", "added", "reshaped", "retyped", "moved", "not_compared", "numbers"}
_KEYS = {"summary", "same", "lost", "renamed", "keys", "equal", "other", "rank", *_COUNTS}


def compared(case: Case, place: Path) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return what a comparison of both folders is expected to be, and what it is."""
    expected = checked(case.keys["expect"], _KEYS, case.name)
    first = build(case, place / "first")
    second = build(Case(case.name, {**case.keys, **case.keys["second"]}), place / "second")
    found = diff(first, second, **case.keys.get("diff", {}))
    return expected, {key: _answer(key, found, expected[key]) for key in expected}


def _answer(key: str, found: Comparison, expected: Any) -> Any:
    if key in _COUNTS:
        return len(getattr(found, key))
    answers = {
        "summary": lambda: [words for words in expected if words in found.summary],
        "same": lambda: found.same,
        "lost": lambda: [[one.module, one.what, one.parameters] for one in found.lost],
        "renamed": lambda: list(found.renamed or ()),
        "keys": lambda: {one.key: one.explains for one in found.keys},
        "equal": lambda: len(found.bytes.equal),
        "other": lambda: len(found.bytes.other),
        "rank": lambda: max((one.rank or 0 for one in found.numbers), default=0),
    }
    return answers[key]()
