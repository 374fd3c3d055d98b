"""The parameters of transformers' classes that no forward pass reads.

Loading gives them random values if no file stores them, and every output stays the same.
`tools/rebuild_unread.py` calls small models of each class to find them.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec.json import decode

_DATA = Path(__file__).parents[1] / "data" / "unread.json"


def unread_names(target: str) -> frozenset[str]:
    """Return the names on disk of the parameters that a class has and never reads."""
    return _unread_by_class().get(target, frozenset())


@cache
def _unread_by_class() -> Mapping[str, frozenset[str]]:
    library: dict[str, list[str]] = decode(_DATA.read_bytes())
    return {target: frozenset(names) for target, names in library.items()}
