"""Values of tokenizer_config.json and similar files: added tokens, special tokens, templates."""

from collections.abc import Iterator, Mapping
from typing import Any

from auditor.companions.companion_files import (
    ADDED,
    OFFSET_PIECES,
    TEKKEN,
    TOKENIZER,
    TOKENIZER_CONFIG,
)
from auditor.companions.vocabulary import MOST_ADDED, MOST_DIGITS, Token, Vocabulary, token_of

DEFAULT = "default"
_DECODER = "added_tokens_decoder"
_ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
_MOST_NAMED = 200  # most additional special tokens that are looked up


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
