"""Ids of tokens that no row of the embedding answers: of the tokenizer, of the config."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from auditor.companions.companion_files import GENERATION
from auditor.messages import quoted
from auditor.reconciler.findings import Finding, SpecialIdBeyondVocabulary, TokenBeyondEmbedding
from auditor.reconciler.repository_rules.repository_case import (
    EmbeddingRows,
    RepositoryCase,
    special_ids_of,
    value_text,
)

_SPECIAL = re.compile(
    r"(?:bos|eos|pad|sep|cls|unk|mask|decoder_start|forced_bos|forced_eos|image|video|vision"
    r"|vision_start|vision_end|audio|boi|eoi|boa|eoa)_token_(?:id|index)"
)
_MOST_NAMED = 5


def token_id_findings(case: RepositoryCase) -> Iterator[Finding]:
    rows = case.rows
    if rows is None:
        return
    yield from _beyond_embedding(case, rows)
    yield from _beyond_vocabulary(case, rows)


def _beyond_embedding(case: RepositoryCase, rows: EmbeddingRows) -> Iterator[Finding]:
    beyond: dict[int, str] = {}
    says: list[tuple[str, str, str]] = []
    for file, token in case.added:
        if token.id >= rows.rows:
            beyond[token.id] = token.text
            says.append((file, f"added_tokens.{token.id}", value_text(token.text)))
    for file, vocabulary in case.vocabularies.items():
        top = vocabulary.highest
        if top is not None and top.id >= rows.rows:
            beyond.setdefault(top.id, top.text)
            says.append((file, f"vocab.{top.id}", value_text(top.text)))
    if not beyond:
        return
    ids = tuple(sorted(beyond))
    named = ", ".join(f"{quoted(beyond[one])} {one:,}" for one in ids[:_MOST_NAMED])
    more = f" and {len(ids) - _MOST_NAMED:,} more" if len(ids) > _MOST_NAMED else ""
    files = ", ".join(sorted({file for file, *_ in says}))
    yield TokenBeyondEmbedding(
        says=tuple(sorted(says)[:_MOST_NAMED]),
        ids=ids,
        rows=rows.rows,
        rows_of=rows.of,
        reason=f"{files}: {named}{more}; {_answered(case, rows)}",
        fix=f"resize the embedding to {ids[-1] + 1:,} rows and save the model and the tokenizer "
        "together, or upload the tokenizer that the model was trained with",
    )


def _answered(case: RepositoryCase, rows: EmbeddingRows) -> str:
    by = "" if case.rows_are_stored else ", by the config: no header was read"
    return f"{rows.of} has {rows.rows:,} rows, for ids 0 to {rows.rows - 1:,}{by}"


def _beyond_vocabulary(case: RepositoryCase, rows: EmbeddingRows) -> Iterator[Finding]:
    says: list[tuple[str, str, str]] = []
    beyond: set[int] = set()
    for file, key, value, part in _special_ids(case):
        high = [one for one in special_ids_of(value) if one >= rows.rows]
        if high and value != case.default(key.rpartition(".")[2], part):
            says.append((file, key, value_text(value)))
            beyond.update(high)
    if not beyond:
        return
    each = ", ".join(f"{file}: {key} {value}" for file, key, value in says[:_MOST_NAMED])
    keys = ", ".join(sorted({key for _, key, _ in says}))
    yield SpecialIdBeyondVocabulary(
        says=tuple(says),
        ids=tuple(sorted(beyond)),
        rows=rows.rows,
        rows_of=rows.of,
        reason=f"{each}; {_answered(case, rows)}",
        fix=f"set {keys} to the id that the tokenizer gives the token, below {rows.rows:,}",
    )


def _special_ids(case: RepositoryCase) -> Iterator[tuple[str, str, Any, str | None]]:
    """File, key and value of each special id, and the part of the config that it is in."""
    yield from _of(case.config_file, case.config, None)
    part = case.text_part()
    if part is not None:
        yield from _of(case.config_file, part[1], part[0])
    generation = case.object(GENERATION)
    if generation is not None:
        yield from _of(GENERATION, generation, None)


def _of(
    file: str, values: Mapping[str, Any], part: str | None
) -> Iterator[tuple[str, str, Any, str | None]]:
    path = f"{part}." if part else ""
    for key, value in values.items():
        if _SPECIAL.fullmatch(key):
            yield file, path + key, value, part
