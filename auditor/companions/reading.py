"""Companions: the companion files of one model, each parsed once, as transformers loads them."""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct, field

from auditor.bounded.json_text import parse_object
from auditor.companions.companion_files import (
    ADDED,
    OFFSET_PIECES,
    OLDER_TEMPLATE,
    PROCESSOR,
    SPECIAL,
    TEMPLATE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    CompanionFile,
    is_vocabulary,
    template_name,
)
from auditor.companions.tokenizer_config import (
    DEFAULT,
    has_decoder,
    loaded_settings,
    loaded_tokens,
    templates,
    text_of_token,
)
from auditor.companions.vocabulary import Token, Vocabulary, vocabulary_of
from auditor.errors import CheckpointError

TEMPLATE_KEY = "chat_template"
# The files that may contain chat templates under this key.
TEMPLATE_CONFIGS = (TOKENIZER_CONFIG, OLDER_TEMPLATE, PROCESSOR)


class Companions(Struct, frozen=True, dict=True):
    """The companion files of one model; the properties ignore files that cannot be used."""

    files: Mapping[str, CompanionFile]
    unread: dict[str, str] = field(default_factory=dict)  # file name -> why it could not be used
    _objects: dict[str, Mapping[str, Any] | None] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Iterable[CompanionFile] | None) -> "Companions":
        return cls({file.name: file for file in files or ()})

    def object(self, name: str) -> Mapping[str, Any] | None:
        """Return the JSON object in a file; None if the file is missing or unusable."""
        if name not in self._objects:
            file = self.files.get(name)
            self._objects[name] = None
            if file is not None and file.content is not None:
                try:
                    self._objects[name] = parse_object(file.content, name)
                except CheckpointError as error:
                    self.unread[name] = str(error)
        return self._objects[name]

    def why_unusable(self, *names: str) -> str:
        """Return why one of these files was not read or used; "" if all that exist were."""
        for name in names:
            file = self.files.get(name)
            if file is None:
                continue
            vocabulary = self.vocabularies.get(name)
            is_template = template_name(name) is not None
            if vocabulary and vocabulary.unread:
                return f"{name}: not read: {vocabulary.unread}"
            if vocabulary or (file.content if is_template else self.object(name)) is not None:
                continue
            why = self.unread.get(name) or f"not read{file.unread and ': '}{file.unread}"
            return f"{name}: {why}"
        return ""

    @cached_property
    def vocabularies(self) -> Mapping[str, Vocabulary]:
        """The ids of the tokenizer's tokens, by file."""
        vocabulary_by_file: dict[str, Vocabulary] = {}
        for name, file in self.files.items():
            if file.content is not None and is_vocabulary(name):
                try:
                    vocabulary_by_file[name] = vocabulary_of(file.content, name)
                except CheckpointError as error:
                    self.unread[name] = str(error)
        return vocabulary_by_file

    @cached_property
    def templates(self) -> Mapping[tuple[str, str], str]:
        """The chat templates by (file, name), those that transformers prefers first."""
        texts: dict[tuple[str, str], str] = {}
        for file in sorted(self.files.values(), key=lambda file: file.name != TEMPLATE):
            which = template_name(file.name)
            if which is not None and file.content is not None:
                try:
                    texts[file.name, which or DEFAULT] = file.content.decode()
                except UnicodeDecodeError:
                    self.unread[file.name] = "it is not UTF-8"
        for name in TEMPLATE_CONFIGS:
            named = templates((self.object(name) or {}).get(TEMPLATE_KEY))
            texts |= {(name, which): text for which, text in named.items()}
        return texts

    # --- tokens -------------------------------------------------------------------------------

    @property
    def token_files(self) -> tuple[str, ...]:
        """The files whose tokens loading uses, except vocabularies other than tokenizer.json."""
        older = () if has_decoder(self.object(TOKENIZER_CONFIG) or {}) else (ADDED, SPECIAL)
        return (TOKENIZER, TOKENIZER_CONFIG, *older)

    @cached_property
    def added(self) -> tuple[tuple[str, Token], ...]:
        """Each added token as loading defines it, with the file that contains it."""
        settings = loaded_settings(self.object(TOKENIZER_CONFIG), self.object(SPECIAL))
        return tuple(loaded_tokens(settings, self.vocabularies))

    @cached_property
    def id_by_text(self) -> Mapping[str, int]:
        """The ids of added tokens by their texts."""
        return {token.text: token.id for _, token in self.added}

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """The ids of added tokens, and of tokens of the vocabulary that look special."""
        added = (token for _, token in self.added)
        others = (token for one in self.vocabularies.values() for token in one.special)
        return frozenset(token.id for token in (*added, *others))

    def ids_of(self, text: str) -> frozenset[int]:
        """Return the ids of a special token among the added tokens, else in the vocabulary."""
        added = frozenset(token.id for _, token in self.added if token.text == text)
        return added or frozenset(
            token.id
            for name, vocabulary in self.vocabularies.items()
            for token in vocabulary.special
            if token.text == text and name not in OFFSET_PIECES
        )

    @cached_property
    def end_token(self) -> tuple[str, str]:
        """The file and text of the tokenizer's end token, both "" if no file has it."""
        is_complete = has_decoder(self.object(TOKENIZER_CONFIG) or {})
        for file in (TOKENIZER_CONFIG,) if is_complete else (SPECIAL, TOKENIZER_CONFIG):
            if text := text_of_token((self.object(file) or {}).get("eos_token")):
                return file, text
        return "", ""
