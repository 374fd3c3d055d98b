"""JSON texts as people write them: odd white space, odd numbers, keys that are written twice."""

import json
from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st

Path = tuple[str, ...]

_SPACES = ("", "", " ", "\n", "\r\n\t", "  ", "\n    ")
_NUMBERS = ("0", "-0.0", "1E5", "1e400", "3.0e-05", "1234567890123456789012345678901", "NaN")
_WORDS = ('"a"', '"\\u00e9\\/"', '"é"', '"\\"}{,:"', '"\\ud83d\\ude00"', "null", "true", "[]", "{}")
KEYS = ("a", "b", "c d", "é", 'quo"ted', "x\\y", "")


class Text(NamedTuple):
    """A JSON object's text, and where the values of its members are."""

    text: str
    spans: dict[Path, tuple[int, int]]  # of the value that readers return
    objects: dict[Path, tuple[int, int]]  # those of the spans that are objects; () is the root
    repeated: set[Path]  # members that are written twice


def json_texts(*, repeats: bool = True) -> st.SearchStrategy[Text]:
    """Objects of random members, with and without keys that are written twice."""
    return st.randoms(use_true_random=False).map(lambda draw: _Writer(draw, repeats).whole())


class _Writer:
    def __init__(self, draw: Random, repeats: bool) -> None:  # noqa: FBT001 - of this file
        self._draw, self._repeats = draw, repeats
        self._text = ""
        self._spans: dict[Path, tuple[int, int]] = {}
        self._repeated: set[Path] = set()

    def whole(self) -> Text:
        self._space()
        self._object((), 3)
        self._space()
        objects = {path: span for path, span in self._spans.items() if self._text[span[0]] == "{"}
        spans = {path: span for path, span in self._spans.items() if path}
        return Text(self._text, spans, objects, self._repeated)

    def _space(self) -> None:
        self._text += self._draw.choice(_SPACES)

    def _object(self, path: Path, depth: int) -> None:
        start = len(self._text)
        self._text += "{"
        keys = self._keys()
        for at, key in enumerate(keys):
            self._text += "," if at else ""
            self._space()
            self._text += json.dumps(key, ensure_ascii=self._draw.random() < 0.5)
            self._space()
            self._text += ":"
            self._space()
            self._forget((*path, key))
            self._value((*path, key), depth - 1)
            self._space()
        if not keys:
            self._space()
        self._text += "}"
        self._spans[path] = (start, len(self._text))

    def _keys(self) -> list[str]:
        count = self._draw.randrange(5)
        if self._repeats:
            return self._draw.choices(KEYS, k=count)
        keys = self._draw.sample(KEYS, k=count)
        return sorted(keys) if self._draw.random() < 0.5 else keys

    def _forget(self, path: Path) -> None:
        """Forget an earlier value of the key, which readers do not return."""
        if path in self._spans:
            self._repeated.add(path)
        self._spans = {key: span for key, span in self._spans.items() if key[: len(path)] != path}

    def _value(self, path: Path, depth: int) -> None:
        start, kind = len(self._text), self._draw.random()
        if kind < 0.3 and depth:
            self._object(path, depth)
            return
        if kind < 0.5:
            self._list()
        else:
            self._text += self._draw.choice((*_NUMBERS, *_WORDS))
        self._spans[path] = (start, len(self._text))

    def _list(self) -> None:
        self._text += "["
        for at in range(self._draw.randrange(3)):
            self._text += "," if at else ""
            self._space()
            self._text += self._draw.choice((*_NUMBERS, *_WORDS, '[1, {"a" : 2}]'))
        self._space()
        self._text += "]"


def value_at(values: Any, path: Path) -> Any:
    for key in path:
        values = values[key]
    return values
