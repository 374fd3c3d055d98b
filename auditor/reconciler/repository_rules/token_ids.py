"""Rules about token ids: ids beyond the embedding's rows, and ids at which generation ends."""

import re
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from auditor.companions.companion_files import GENERATION, SPECIAL, TOKENIZER, TOKENIZER_CONFIG
from auditor.companions.tokenizer_config import has_decoder, text_of_token
from auditor.findings import (
    ChatTurnsWrong,
    EosDisagrees,
    Finding,
    OfKeys,
    SpecialIdBeyondVocabulary,
    TokenBeyondEmbedding,
)
from auditor.messages import quoted
from auditor.observation import Checked
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
# Tokens of a family's tokenizer that are replaced by the embeddings of images and sounds.
_PLACEHOLDER = re.compile(r"<\|?(?:image|audio|video|vision)\w*\|?>", re.IGNORECASE)
_PARTS_OF_INPUTS = frozenset(("vision_config", "audio_config"))


def token_id_findings(
    case: RepositoryCase,
) -> Iterator[OfKeys]:
    rows = case.rows
    case.checked["vocabulary"] = _vocabulary_answer(case)
    if rows is None:
        return
    yield from _beyond_embedding(case, rows)
    yield from _beyond_vocabulary(case, rows)


def _vocabulary_answer(case: RepositoryCase) -> Checked:
    """Return whether ids of the tokenizer were compared with the embedding's rows."""
    if unread := case.unusable(*case.token_files):
        return unread
    files = [file for file, vocabulary in case.vocabularies.items() if vocabulary.top is not None]
    if TOKENIZER in files:
        files = [TOKENIZER]  # loading ignores the others
    if not files and (unread := case.unusable(*case.companions)):
        return unread
    if not files and not case.names.isdisjoint((*case.token_files, *case.vocabularies)):
        return Checked("incomparable", "the tokenizer's files that are there contain no ids")
    if not files:
        return case.absence("no file has the ids of tokens")
    if case.rows is None:
        return Checked("incomparable", "the number of rows of the embedding is not known")
    text = f"no id of {', '.join(files)} is beyond the {case.rows.rows:,} rows of {case.rows.of}"
    return Checked("compared", text)


def _beyond_embedding(case: RepositoryCase, rows: EmbeddingRows) -> Iterator[OfKeys]:
    beyond: dict[int, str] = {}
    says: list[tuple[str, str, str]] = []
    is_text_alone = case.config.keys().isdisjoint(_PARTS_OF_INPUTS)
    for file, token in case.added:
        if is_text_alone and _PLACEHOLDER.search(token.text):
            continue  # text models such as Gemma 3's have no row for an image's token
        if token.id >= rows.rows:
            beyond[token.id] = token.text
            says.append((file, f"added_tokens.{token.id}", value_text(token.text)))
    for file, vocabulary in case.vocabularies.items():
        top = vocabulary.highest
        if file != TOKENIZER and TOKENIZER in case.vocabularies:
            continue  # loading ignores this file
        if top is not None and top.id >= rows.rows:
            beyond.setdefault(top.id, top.text)
            says.append((file, f"vocab.{top.id}", value_text(top.text)))
    if not beyond:
        return
    ids = tuple(sorted(beyond))
    named = ", ".join(f"{quoted(beyond[token_id])} {token_id:,}" for token_id in ids[:_MOST_NAMED])
    more = f" and {len(ids) - _MOST_NAMED:,} more" if len(ids) > _MOST_NAMED else ""
    files = ", ".join(sorted({file for file, *_ in says}))
    yield TokenBeyondEmbedding(
        says=tuple(sorted(says)[:_MOST_NAMED]),
        ids=ids,
        rows=rows.rows,
        rows_of=rows.of,
        reason=f"{files} has ids beyond the embedding: {named}{more}; {_rows_text(case, rows)}",
        fix=f"resize the embedding to {ids[-1] + 1:,} rows and save the model and the tokenizer "
        "together, or upload the tokenizer that the model was trained with",
    )


def _rows_text(case: RepositoryCase, rows: EmbeddingRows) -> str:
    by = "" if case.rows_are_stored else ", by the config: no header was read"
    return f"{rows.of} has {rows.rows:,} rows, for ids 0 to {rows.rows - 1:,}{by}"


def _beyond_vocabulary(case: RepositoryCase, rows: EmbeddingRows) -> Iterator[OfKeys]:
    says: list[tuple[str, str, str]] = []
    beyond: set[int] = set()
    for file, key, value, part in _special_ids(case):
        high = [token_id for token_id in special_ids_of(value) if token_id >= rows.rows]
        if high and value != case.default(key.rpartition(".")[2], part):
            says.append((file, key, value_text(value)))
            beyond.update(high)
    if not beyond:
        return
    statements = ", ".join(f"{file}: {key} {value}" for file, key, value in says[:_MOST_NAMED])
    keys = ", ".join(sorted({key for _, key, _ in says}))
    yield SpecialIdBeyondVocabulary(
        says=tuple(says),
        ids=tuple(sorted(beyond)),
        rows=rows.rows,
        rows_of=rows.of,
        reason=f"{statements}; {_rows_text(case, rows)}",
        fix=f"set {keys} to the id that the tokenizer gives the token, below {rows.rows:,}",
    )


def _special_ids(case: RepositoryCase) -> Iterator[tuple[str, str, Any, str | None]]:
    """Yield (file, key, value, part of the config or None) for each special id."""
    part, text = case.text_part() or (None, {})
    places: tuple[tuple[str, Mapping[str, Any], str | None], ...] = (
        (case.config_file, case.config, None),
        (case.config_file, text, part),
        (GENERATION, case.object(GENERATION) or {}, None),
    )
    for file, values, part in places:
        path = f"{part}." if part else ""
        for key, value in values.items():
            if _SPECIAL.fullmatch(key):
                yield file, path + key, value, part


# --- end tokens --------------------------------------------------------------------------------

END = "eos_token_id"
_GENERATES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForSpeechSeq2Seq")


def end_token_findings(case: RepositoryCase) -> Iterator[Finding]:
    """Report different end tokens if neither tokenizer, config nor generation config has them all.

    Ids beyond the embedding are ignored here; another rule reports them.
    """
    case.checked["end tokens"] = _ends_answer(case)
    if not generates(case):
        return
    ids_by_place = end_ids(case)
    every = frozenset().union(*ids_by_place.values())
    if word := _ordinary_end(case):
        case.checked["end tokens"] = Checked("incomparable", "eos_token is an ordinary word")
        yield word
        return
    if len(ids_by_place) < 2 or every in ids_by_place.values():  # noqa: PLR2004 - two to disagree
        return
    ends = ", ".join(
        f"{_ids_text(ids)} by {key} of {file}" for (file, key), ids in ids_by_place.items()
    )
    yield EosDisagrees(
        says=tuple(
            (file, key, value_text(sorted(ids))) for (file, key), ids in ids_by_place.items()
        ),
        ids=tuple(sorted(every)) if every <= case.special_ids else (),
        reason=f"the files disagree where generation ends: {ends}; no file has all of them",
        fix=f"set {END} of {GENERATION} to {_ids_text(every)}, or to those of them that are meant",
    )


def generates(case: RepositoryCase) -> bool:
    """Whether the model generates text, by its class or its files."""
    return GENERATION in case.companions or (case.target or "").endswith(_GENERATES)


def _ends_answer(case: RepositoryCase) -> Checked:
    """Return whether end tokens of two places at least were compared."""
    if unread := case.unusable(GENERATION, *case.token_files):
        return unread
    if not generates(case):
        is_known = case.target is not None and not case.is_custom
        text = f"{case.target} does not generate text"
        unknown = Checked("incomparable", "whether the model generates text is not known")
        return Checked("unneeded", text) if is_known else unknown
    declared, ids_by_place = dict(_declared_ends(case)), end_ids(case)
    for (file, key), ids in declared.items():
        if ids != ids_by_place.get((file, key)):
            return Checked("incomparable", f"{key} of {file} is not an id of the vocabulary")
    values = (case.object(file) or {} for file in (SPECIAL, TOKENIZER_CONFIG))
    if len({text_of_token(one.get("eos_token")) for one in values} - {None}) > 1:
        text = f"eos_token of {SPECIAL} and of {TOKENIZER_CONFIG} differ"
        return Checked("incomparable", text)
    if not declared:
        return case.absence("no file names an end token")
    ends = ", ".join(
        f"{_ids_text(ids)} by {key} of {file}" for (file, key), ids in declared.items()
    )
    agreed = Checked("compared", f"the files agree where generation ends: {ends}")
    alone = Checked("incomparable", f"only one file names the end of generation: {ends}")
    return agreed if len(declared) > 1 else alone


def end_ids(case: RepositoryCase) -> dict[tuple[str, str], frozenset[int]]:
    """Return the ids at which generation ends, by (file, key), without ids beyond the embedding."""
    rows = case.rows.rows if case.rows else inf
    declared = {
        place: frozenset(one for one in ids if one < rows) for place, ids in _declared_ends(case)
    }
    return {place: ids for place, ids in declared.items() if ids}


# Texts that count as special tokens: punctuation, words such as eos, and single characters, which
# are ordinary only in a vocabulary of letters.
_SPECIAL_FORM = re.compile(
    r"[<>\[\]{}|]|^\W*$|^.?$|^\d+$|^\W*(?:eos|eot|eod|end|stop|sep|pad)\W*$", re.IGNORECASE
)


def _ordinary_end(case: RepositoryCase) -> OfKeys | None:
    """Return a finding if the tokenizer's end token is an ordinary word of its vocabulary."""
    file, text = end_token(case)
    added = {token.text for _, token in case.added}
    ids = case.ids_of(text)
    if not ids or text in added or _SPECIAL_FORM.search(text):
        return None
    return ChatTurnsWrong(
        says=((file, "eos_token", value_text(text)),),
        reason=f"eos_token of {file} is {quoted(text)}, an ordinary word of the vocabulary "
        f"({_ids_text(ids)}) and not an added token: generation ends wherever it occurs",
        fix=f"set eos_token of {file} to the special token at which the model was trained to stop, "
        f"and {END} of {GENERATION} to its id",
    )


def end_token(case: RepositoryCase) -> tuple[str, str]:
    """Return the file and text of the tokenizer's end token, both "" if no file has it."""
    is_complete = has_decoder(case.object(TOKENIZER_CONFIG) or {})
    for file in (TOKENIZER_CONFIG,) if is_complete else (SPECIAL, TOKENIZER_CONFIG):
        values = case.object(file)
        if text := text_of_token(values.get("eos_token")) if values else None:
            return file, text
    return "", ""


def _declared_ends(case: RepositoryCase) -> Iterator[tuple[tuple[str, str], frozenset[int]]]:
    if case.config.get(END) is not None:
        yield (case.config_file, END), frozenset(special_ids_of(case.config[END]))
    elif (part := case.text_part()) and part[1].get(END) != case.default(END, part[0]):
        yield (case.config_file, f"{part[0]}.{END}"), frozenset(special_ids_of(part[1].get(END)))
    generation = case.object(GENERATION) or {}
    if generation.get(END) is not None:
        yield (GENERATION, END), frozenset(special_ids_of(generation[END]))
    file, text = end_token(case)
    if text:
        yield (file, f"eos_token {text}"), case.ids_of(text)


def _ids_text(ids: frozenset[int]) -> str:
    return value_text(min(ids) if len(ids) == 1 else sorted(ids))
