"""Which token ids a tokenizer has, from the files beside the weights. Pure, of the files' bytes."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from auditor.companions.companion_files import (
    ADDED,
    SPECIAL,
    TOKENIZER,
    TOKENIZER_CONFIG,
    CompanionFile,
    is_vocabulary,
)
from auditor.companions.vocabulary import vocabulary_of
from auditor.errors import CheckpointError

FILES = (TOKENIZER, TOKENIZER_CONFIG, ADDED, SPECIAL, "vocab.json", "vocab.txt")
_MOST = 10_000_000  # ids of a vocabulary; those known have a quarter of a million


class Tokens(NamedTuple):
    """Token ids, and which of them pad; both empty where nothing says."""

    ids: frozenset[int]
    padding: frozenset[int]


def read_tokens(read: Callable[[str], bytes | None]) -> Tokens:
    """What the files say; `read` gives a file's content, or None where it is not there.

    A file that is broken says nothing here: it is no matter of numbers.
    """
    found = {name: content for name in FILES if (content := read(name)) is not None}
    objects = {name: _object(content) for name, content in found.items() if name.endswith("json")}
    known: dict[str, int] = {}
    for name in ("vocab.json", "added_tokens.json"):
        known.update(_numbered(objects.get(name, {})))
    if "vocab.txt" in found:
        lines = found["vocab.txt"].decode(errors="replace").splitlines()
        known.update((line, at) for at, line in enumerate(lines))
    known.update(_fast(objects.get("tokenizer.json", {})))
    decoder = objects.get("tokenizer_config.json", {}).get("added_tokens_decoder")
    for key, value in decoder.items() if isinstance(decoder, dict) else ():
        if key.isdecimal() and isinstance(value, dict) and len(key) < 10:  # noqa: PLR2004
            known[str(value.get("content"))] = int(key)
    return Tokens(ids=frozenset(known.values()), padding=_padding(objects, known))


def known_tokens(companions: Iterable[CompanionFile]) -> Tokens:
    """The same of files that were read for what they say of ids alone: those that are certain.

    A vocabulary with as many entries as its highest id says has every id below.
    """
    ids: set[int] = set()
    known: dict[str, int] = {}
    objects: dict[str, Mapping[str, Any]] = {}
    for file in companions:
        if file.content is None:
            continue
        if not is_vocabulary(file.name):
            objects[file.name] = _object(file.content)
            continue
        try:
            found = vocabulary_of(file.content, file.name)
        except CheckpointError:
            continue  # what is wrong with it is said elsewhere
        known.update((token.text, token.id) for token in found.added)
        if found.highest and found.entries == found.highest.id + 1 <= _MOST:
            ids.update(range(found.entries))
    return Tokens(ids=frozenset(ids.union(known.values())), padding=_padding(objects, known))


def _padding(objects: Mapping[str, Mapping[str, Any]], known: Mapping[str, int]) -> frozenset[int]:
    pads = {_text(objects.get(name, {}).get("pad_token")) for name in (TOKENIZER_CONFIG, SPECIAL)}
    return frozenset(known[pad] for pad in pads if pad is not None and pad in known)


def _object(content: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _numbered(entries: object) -> Iterator[tuple[str, int]]:
    if isinstance(entries, dict):
        yield from ((key, value) for key, value in entries.items() if type(value) is int)


def _fast(tokenizer: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """tokenizer.json: a vocabulary by name, or a list of pieces (Unigram), and what was added."""
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    yield from _numbered(vocabulary)
    if isinstance(vocabulary, list):
        yield from ((str(_first(piece)), at) for at, piece in enumerate(vocabulary))
    added = tokenizer.get("added_tokens")
    for one in added if isinstance(added, list) else ():
        if isinstance(one, dict) and type(one.get("id")) is int:
            yield str(one.get("content")), one["id"]


def _first(piece: object) -> object:
    return next(iter(piece), None) if isinstance(piece, Iterable) else piece


def _text(token: object) -> str | None:
    """A token, or an object that has it as its content."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None
