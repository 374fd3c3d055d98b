"""The ids that a tokenizer file of any format declares, and their JSON form in a snapshot."""

import json
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from auditor.bounded.json_text import JsonFile, converted
from auditor.errors import CheckpointError
from auditor.messages import named

MOST_DIGITS = 20  # most digits of an id: 2**63 has 19
# The most added tokens that are kept by name; the largest known number is Gemma 3's 6,415.
MOST_ADDED = 20_000
_LONGEST = 200  # characters of a token


class Token(NamedTuple):
    """A token and its id."""

    id: int
    text: str


class Vocabulary(Struct, frozen=True):
    """The ids that one file of a tokenizer declares."""

    kind: str  # "BPE", "WordPiece", "Unigram", "sentencepiece", "tiktoken", "tekken", "list", ...
    highest: Token | None = None  # highest id, without added tokens; None: not read, or empty
    entries: int | None = None  # entries, without added tokens; None: not all were read
    added: tuple[Token, ...] = ()  # sorted by id
    unread: str = ""  # the part that was not read, or why; "": all was read
    special: tuple[Token, ...] = ()  # tokens of the vocabulary that look special, or were looked up
    absent: tuple[str, ...] = ()  # tokens that were looked up and are not in the file
    truncation: int | None = None  # the number of tokens to which texts are truncated
    padding: int | None = None  # the number of tokens to which texts are padded

    @property
    def top(self) -> Token | None:
        """The token with the highest id that was read."""
        tokens = [*self.added, *((self.highest,) if self.highest else ())]
        return max(tokens, key=lambda token: token.id, default=None)


def token_of(number: int, text: str) -> Token:
    return Token(number, text[:_LONGEST])


def summary_json(vocabulary: Vocabulary) -> bytes:
    """Encode a vocabulary as JSON, for a snapshot."""
    always = ("kind", "entries", "unread", "highest", "added")
    fields = asdict(vocabulary).items()
    summary = {key: value for key, value in fields if key in always or value not in (None, ())}
    return json.dumps(summary, separators=(",", ":"), sort_keys=True).encode()


def vocabulary_of(file: JsonFile) -> Vocabulary:
    """Return the vocabulary that `summary_json` wrote; raise CheckpointError for other content."""
    vocabulary = converted(file.object, Vocabulary)
    tokens = (*vocabulary.added, *vocabulary.special, *filter(None, (vocabulary.highest,)))
    if any(len(str(token.id)) > MOST_DIGITS + 1 for token in tokens):
        raise CheckpointError(f"{named(file.name)} has an id of more than {MOST_DIGITS} digits")
    return vocabulary
