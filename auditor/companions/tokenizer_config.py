"""tokenizer_config.json and its kin: ids of added tokens, the end token, the templates inside."""

from collections.abc import Iterator, Mapping
from typing import Any

from auditor.bounded.json_scan import MOST_DIGITS
from auditor.companions.vocabulary import MOST_ADDED, Token, token_of

DEFAULT = "default"


def added_tokens(of: Mapping[str, Any]) -> tuple[Token, ...]:
    """Read `added_tokens_decoder`, {"32000": {"content": ...}}, by id."""
    found = of.get("added_tokens_decoder")
    if not isinstance(found, Mapping) or len(found) > MOST_ADDED:
        return ()
    return tuple(sorted(_added(found)))


def _added(found: Mapping[str, Any]) -> Iterator[Token]:
    for number, said in found.items():
        if number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS:
            yield token_of(int(number), text_of_token(said) or "")


def text_of_token(said: object) -> str | None:
    """A token is a string, or an object with its content."""
    if isinstance(said, Mapping):
        said = said.get("content")
    return said if isinstance(said, str) else None


def templates(of: Mapping[str, Any]) -> dict[str, str]:
    """The chat templates by their names; one alone is the default."""
    said = of.get("chat_template")
    match said:
        case str():
            return {DEFAULT: said}
        case list():
            pairs = (
                (one.get("name"), one.get("template")) for one in said if isinstance(one, dict)
            )
        case Mapping():
            pairs = ((name, text) for name, text in said.items())
        case _:
            return {}
    return {name: text for name, text in pairs if isinstance(name, str) and isinstance(text, str)}
