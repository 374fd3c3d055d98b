"""The token ids of a tokenizer, from the companion files that the audit read."""

from collections.abc import Iterable

from msgspec import Struct

from auditor.companions.companion_files import SPECIAL, TOKENIZER_CONFIG, CompanionFile
from auditor.companions.reading import Companions, added_tokens, text_of_token
from auditor.values.name_patterns import EMBEDDING


class Tokens(Struct, frozen=True, kw_only=True):
    """The ids that have a token according to the companion files, and ids of padding tokens."""

    complete_below: int = 0  # every id below this number has a token
    others: frozenset[int] = frozenset()
    padding: frozenset[int] = frozenset()
    unchecked: tuple[str, ...] = ()  # why more ids may have a token

    def has(self, number: int) -> bool:
        """Return whether the embedding row with this number certainly has a token."""
        return 0 <= number < self.complete_below or number in self.others

    @property
    def row_count(self) -> int:
        """The number of embedding rows up to the last token; 0 if no token is known."""
        return max(self.complete_below, *(number + 1 for number in self.others), 0)


def unchecked_rows(tokens: Tokens, names: Iterable[str]) -> tuple[str, ...]:
    """Return lines about rows that are not checked; () for a model without a token embedding."""
    is_needed = any(map(EMBEDDING.search, names))
    return tokens.unchecked if is_needed else ()


def known_tokens(companions: Iterable[CompanionFile] | None) -> Tokens:
    """Return the tokens that the companion files declare; `companions` is None if not read.

    A vocabulary with n entries and the highest id n - 1 has every id below n. A broken file
    declares no tokens here; other rules report it.
    """
    if companions is None:
        return Tokens(unchecked=("untrained rows: no tokenizer was read",))
    files = Companions.of(companions)
    declared = [files.object(name) or {} for name in (TOKENIZER_CONFIG, SPECIAL)]
    complete_below = 0
    tokens = list(added_tokens(declared[0]))
    unchecked: list[str] = []
    for name, vocabulary in files.vocabularies.items():
        tokens += (*vocabulary.special, *vocabulary.added)
        if vocabulary.highest is None or vocabulary.entries is None:
            continue  # another rule reports it
        if vocabulary.entries == vocabulary.highest.id + 1:
            complete_below = max(complete_below, vocabulary.entries)
        else:
            unchecked.append(
                f"untrained rows: {name} has {vocabulary.entries:,} entries, expected "
                f"{vocabulary.highest.id + 1:,} up to its highest id; only added tokens are known"
            )
    id_by_text = {token.text: token.id for token in tokens}
    pads = (text_of_token(one.get("pad_token")) for one in declared)
    return Tokens(
        complete_below=complete_below,
        others=frozenset(token.id for token in tokens),
        padding=frozenset(id_by_text[pad] for pad in pads if pad is not None and pad in id_by_text),
        unchecked=tuple(unchecked),
    )
