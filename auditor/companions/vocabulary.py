"""Vocabulary: what a tokenizer's file says of its ids, whatever its format; and its JSON form.

A file of many megabytes is read once, for what matters of it, and this is what a snapshot keeps.
"""

import json
from typing import NamedTuple

from auditor.bounded.json_scan import MOST_DIGITS
from auditor.bounded.json_text import parse_object
from auditor.errors import CheckpointError

# Added tokens that are kept by name: the 6,415 of Gemma 3 are the most known.
MOST_ADDED = 20_000
_LONGEST = 200  # characters of a token


class Token(NamedTuple):
    """A token that is in no vocabulary, or in one by its own right."""

    id: int
    text: str


class Vocabulary(NamedTuple):
    """The ids of a tokenizer, by one file."""

    kind: str  # "BPE", "WordPiece", "Unigram", "sentencepiece", "tiktoken", "tekken", "list", ...
    highest: Token | None = None  # of the vocabulary itself; None: not read, or there is none
    entries: int | None = None  # of it; None: not all were read
    added: tuple[Token, ...] = ()  # by their ids
    unread: str = ""  # why not all of the file was read; "": it was
    special: tuple[Token, ...] = ()  # of the vocabulary itself, which look it: "</s>"

    @property
    def top(self) -> Token | None:
        """The highest id of all that was read."""
        tokens = [*self.added, *((self.highest,) if self.highest else ())]
        return max(tokens, key=lambda token: token.id, default=None)


def token_of(number: int, text: str) -> Token:
    return Token(number, text[:_LONGEST])


def summary_json(of: Vocabulary) -> bytes:
    """Encode a vocabulary for a snapshot."""
    said: dict[str, object] = {"kind": of.kind, "entries": of.entries, "unread": of.unread}
    said["highest"] = list(of.highest) if of.highest else None
    said["added"] = [list(token) for token in of.added]
    if of.special:
        said["special"] = [list(token) for token in of.special]
    return json.dumps(said, separators=(",", ":"), sort_keys=True).encode()


def vocabulary_of(content: bytes, file: str) -> Vocabulary:
    """Decode what `summary_json` wrote; raise CheckpointError for anything else."""
    said = parse_object(content, file)
    kind, unread, added = (said.get(key) for key in ("kind", "unread", "added"))
    entries, highest, special = said.get("entries"), said.get("highest"), said.get("special", [])
    texts = isinstance(kind, str) and isinstance(unread, str)
    if not texts or not isinstance(added, list) or not isinstance(entries, int | None):
        raise _no_summary(file)
    if not isinstance(special, list):
        raise _no_summary(file)
    return Vocabulary(
        kind=str(kind),
        highest=None if highest is None else _token(highest, file),
        entries=entries,
        added=tuple(_token(one, file) for one in added),
        unread=str(unread),
        special=tuple(_token(one, file) for one in special),
    )


def _token(said: object, file: str) -> Token:
    match said:
        case [int(number), str(text)] if len(str(number)) <= MOST_DIGITS + 1:
            return Token(number, text)
    raise _no_summary(file)


def _no_summary(file: str) -> CheckpointError:
    return CheckpointError(f"{file}: this is not a summary of a vocabulary")
