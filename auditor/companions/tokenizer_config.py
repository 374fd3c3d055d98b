"""Values of tokenizer_config.json and similar files: added tokens, special tokens, templates."""

from collections.abc import Iterator, Mapping
from typing import Any

from auditor.companions.vocabulary import MOST_ADDED, MOST_DIGITS, Token, token_of

DEFAULT = "default"


def added_tokens(config: Mapping[str, Any]) -> tuple[Token, ...]:
    """Return the tokens of `added_tokens_decoder`, {"32000": {"content": ...}}, by id."""
    decoder = config.get("added_tokens_decoder")
    if not isinstance(decoder, Mapping) or len(decoder) > MOST_ADDED:
        return ()
    return tuple(sorted(_added(decoder)))


def _added(decoder: Mapping[str, Any]) -> Iterator[Token]:
    for number, token in decoder.items():
        if number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS:
            yield token_of(int(number), text_of_token(token) or "")


def text_of_token(token: object) -> str | None:
    """Return the text of a token, which is a string or an object with its content."""
    text = token.get("content") if isinstance(token, Mapping) else token
    return text if isinstance(text, str) else None


def templates(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the chat templates by name; a single one is the default."""
    match config.get("chat_template"):
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
