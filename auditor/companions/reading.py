"""Companions: the companion files of one model, each parsed once, as transformers loads them."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from msgspec import Struct, field

from auditor.companions.companion_files import (
    ADDED,
    OFFSET_PIECES,
    OLDER_TEMPLATE,
    PROCESSOR,
    SPECIAL,
    TEKKEN,
    TEMPLATE,
    TOKENIZER,
    TOKENIZER_CONFIG,
    CompanionFile,
    is_vocabulary,
    template_name,
)
from auditor.companions.vocabulary import (
    MOST_ADDED,
    MOST_DIGITS,
    Token,
    Vocabulary,
    token_of,
    vocabulary_of,
)
from auditor.errors import CheckpointError

DEFAULT = "default"
_DECODER = "added_tokens_decoder"
_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_MOST_NAMED = 200  # most additional special tokens that are looked up
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
                    self._objects[name] = file.object
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
                    vocabulary_by_file[name] = vocabulary_of(file)
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


# --- the values of tokenizer_config.json and similar files --------------------------------------


def added_tokens(config: Mapping[str, Any]) -> tuple[Token, ...]:
    """Return the tokens of `added_tokens_decoder`, {"32000": {"content": ...}}, by id."""
    decoder = config.get(_DECODER)
    if not isinstance(decoder, Mapping) or len(decoder) > MOST_ADDED:
        return ()
    tokens = (
        token_of(int(number), text_of_token(token) or "")
        for number, token in decoder.items()
        if number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS
    )
    return tuple(sorted(tokens))


def loaded_tokens(
    config: Mapping[str, Any], vocabularies: Mapping[str, Vocabulary]
) -> Iterator[tuple[str, Token]]:
    """Yield each added token with its file, as transformers 5.24 loads them.

    `added_tokens_decoder` replaces added_tokens.json. The ids of tokenizer.json take precedence; a
    token that the vocabulary lacks, or a special token that the config names, gets the next free
    id, whatever id is declared. A token is left out if an unread part of tokenizer.json decides its
    id.
    """
    file, declared = ADDED, vocabularies[ADDED].added if ADDED in vocabularies else ()
    if has_decoder(config):
        file, declared = TOKENIZER_CONFIG, added_tokens(config)
    vocabulary = _loaded_vocabulary(vocabularies)
    if vocabulary is None:
        yield from ((file, token) for token in declared)
        return
    yield from ((TOKENIZER, token) for token in vocabulary.added)
    if vocabulary.entries is None:
        return
    texts = {token.text for token in vocabulary.added}
    special_tokens = {token.text: token for token in vocabulary.special}
    free = max(vocabulary.entries, *(token.id + 1 for token in vocabulary.added), 0)
    for token in declared:
        if token.text in texts:
            continue
        if token.id < vocabulary.entries or token.text in special_tokens:
            yield file, special_tokens.get(token.text, token)  # a token of the vocabulary
        else:
            yield file, Token(free, token.text)
            free += 1
        texts.add(token.text)
    for text in named_tokens(config):
        if text in vocabulary.absent and text not in texts:
            yield TOKENIZER_CONFIG, Token(free, text)
            free += 1


def _loaded_vocabulary(vocabularies: Mapping[str, Vocabulary]) -> Vocabulary | None:
    """Return the vocabulary to which tokens are added; None if its size is unknown."""
    if TOKENIZER in vocabularies:
        return vocabularies[TOKENIZER]
    complete = (
        vocabulary
        for file, vocabulary in vocabularies.items()
        if file not in OFFSET_PIECES
        and file not in {ADDED, TEKKEN}
        and vocabulary.entries is not None
    )
    return next(complete, None)


def loaded_settings(
    config: Mapping[str, Any] | None, special: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """Return the settings that transformers 5.24 loads from a tokenizer's config.

    The tokens of special_tokens_map.json replace the config's tokens, unless the config has
    `added_tokens_decoder`.
    """
    values = config or {}
    return values if has_decoder(values) else {**values, **(special or {})}


def has_decoder(config: Mapping[str, Any]) -> bool:
    """Return whether the config contains the added tokens; if so, no older file is read."""
    return _DECODER in config


def named_tokens(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the special tokens that the config names, in the order in which they are added."""
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens")
    tokens = [config.get(f"{role}_token") for role in _ROLES]
    tokens += extra[:_MOST_NAMED] if isinstance(extra, list) else []
    texts = (text_of_token(token) for token in tokens)
    return tuple(dict.fromkeys(text for text in texts if text))


def text_of_token(token: object) -> str | None:
    """Return the text of a token, which is a string or an object with its content."""
    text = token.get("content") if isinstance(token, Mapping) else token
    return text if isinstance(text, str) else None


def templates(value: object) -> dict[str, str]:
    """Return the templates in a value of `chat_template` by name; one alone is the default."""
    match value:
        case str(template):
            return {DEFAULT: template}
        case list(entries):
            pairs = [
                (entry.get("name"), entry.get("template"))
                for entry in entries
                if isinstance(entry, dict)
            ]
        case dict(by_name):
            pairs = list(by_name.items())
        case _:
            return {}
    return {name: text for name, text in pairs if isinstance(name, str) and isinstance(text, str)}
