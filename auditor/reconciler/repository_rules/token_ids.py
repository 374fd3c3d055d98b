"""Rules about token ids: ids beyond the embedding's rows, and ids at which generation ends."""

import re
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from auditor.companions.companion_files import GENERATION, SPECIAL, TOKENIZER, TOKENIZER_CONFIG
from auditor.companions.reading import text_of_token
from auditor.companions.vocabulary import Token
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
from auditor.reconciler.repository_rules.processors import needs_tokenizer
from auditor.reconciler.repository_rules.repository_case import (
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
    case.checked["vocabulary"] = _vocabulary_answer(case)
    if case.rows is None:
        return
    rows, of = case.rows
    by = "" if case.stored_rows else ", by the config: no header was read"
    has_rows = f"{of} has {rows:,} rows, for ids 0 to {rows - 1:,}{by}"
    beyond = [(file, kind, token) for file, kind, token in _loaded_ids(case) if token.id >= rows]
    if beyond:
        text_by_id = {token.id: token.text for _, _, token in reversed(beyond)}
        ids = tuple(sorted(text_by_id))
        named = ", ".join(f"{quoted(text_by_id[one])} {one:,}" for one in ids[:_MOST_NAMED])
        more = f" and {len(ids) - _MOST_NAMED:,} more" if len(ids) > _MOST_NAMED else ""
        files = ", ".join(sorted({file for file, *_ in beyond}))
        says = sorted(
            (file, f"{kind}.{one.id}", value_text(one.text)) for file, kind, one in beyond
        )
        yield TokenBeyondEmbedding(
            says=tuple(says[:_MOST_NAMED]),
            ids=ids,
            rows=rows,
            rows_of=of,
            reason=f"{files} has ids beyond the embedding: {named}{more}; {has_rows}",
            fix=f"resize the embedding to {ids[-1] + 1:,} rows and save the model and the "
            "tokenizer together, or upload the tokenizer that the model was trained with",
        )
    high = [
        (file, key, value)
        for file, key, value, part in _special_ids(case)
        if any(one >= rows for one in special_ids_of(value))
        and value != case.default(key.rpartition(".")[2], part)
    ]
    if high:
        says = [(file, key, value_text(value)) for file, key, value in high]
        stated = ", ".join(f"{file}: {key} {value}" for file, key, value in says[:_MOST_NAMED])
        keys = ", ".join(sorted({key for _, key, _ in says}))
        every = {one for *_, value in high for one in special_ids_of(value) if one >= rows}
        yield SpecialIdBeyondVocabulary(
            says=tuple(says),
            ids=tuple(sorted(every)),
            rows=rows,
            rows_of=of,
            reason=f"{stated}; {has_rows}",
            fix=f"set {keys} to the id that the tokenizer gives the token, below {rows:,}",
        )


def _vocabulary_answer(case: RepositoryCase) -> Checked:
    """Return whether ids of the tokenizer were compared with the embedding's rows."""
    companions = case.companions
    if unread := case.unusable(*companions.token_files):
        return unread
    vocabularies = companions.vocabularies
    files = [file for file, vocabulary in vocabularies.items() if vocabulary.top is not None]
    if TOKENIZER in files:
        files = [TOKENIZER]  # loading ignores the others
    if files and case.rows is None:
        return Checked("incomparable", "the number of rows of the embedding is not known")
    if files and case.rows:
        text = f"no id of {', '.join(files)} is beyond the {case.rows.rows:,} rows of"
        return Checked("compared", f"{text} {case.rows.of}")
    if unread := case.unusable(*companions.files):
        return unread
    if not case.names.isdisjoint((*companions.token_files, *vocabularies)):
        return Checked("incomparable", "the tokenizer's files that are there contain no ids")
    return _absence(case)


def _absence(case: RepositoryCase) -> Checked:
    """Return the answer for a model without a vocabulary; one that reads text lacks a tokenizer."""
    if needs_tokenizer(case) and (case.is_complete or case.is_local):
        text = "no tokenizer is there; save it too: tokenizer.save_pretrained(FOLDER)"
        case.checked["tokenizer"] = Checked("absent", text)
        return case.checked["tokenizer"]
    return case.absence("no file has the ids of tokens")


def _loaded_ids(case: RepositoryCase) -> Iterator[tuple[str, str, Token]]:
    """Yield (file, kind of token, token) of added tokens, and the last token of a vocabulary."""
    is_text_alone = case.config.keys().isdisjoint(_PARTS_OF_INPUTS)
    for file, token in case.companions.added:
        # Text models such as Gemma 3's have no row for an image's token.
        if not (is_text_alone and _PLACEHOLDER.search(token.text)):
            yield file, "added_tokens", token
    vocabularies = case.companions.vocabularies
    for file, vocabulary in vocabularies.items():
        is_loaded = file == TOKENIZER or TOKENIZER not in vocabularies
        if is_loaded and vocabulary.highest is not None:
            yield file, "vocab", vocabulary.highest


def _special_ids(case: RepositoryCase) -> Iterator[tuple[str, str, Any, str | None]]:
    """Yield (file, key, value, part of the config or None) for each special id."""
    part, text = case.text_part() or (None, {})
    places: tuple[tuple[str, Mapping[str, Any], str | None], ...] = (
        (case.config_file, case.config, None),
        (case.config_file, text, part),
        (GENERATION, case.companions.object(GENERATION) or {}, None),
    )
    for file, values, part in places:
        path = f"{part}." if part else ""
        for key, value in values.items():
            if _SPECIAL.fullmatch(key):
                yield file, path + key, value, part


# --- end tokens --------------------------------------------------------------------------------

END_ID = "eos_token_id"
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
    yield EosDisagrees(
        says=tuple(
            (file, key, value_text(sorted(ids))) for (file, key), ids in ids_by_place.items()
        ),
        ids=tuple(sorted(every)) if every <= case.companions.special_ids else (),
        reason=f"the files disagree where generation ends: {_ends_text(ids_by_place)}; no file has "
        "all of them",
        fix=f"set {END_ID} of {GENERATION} to {_ids_text(every)}, or to those of them that are "
        "meant",
    )


def generates(case: RepositoryCase) -> bool:
    """Whether the model generates text, by its class or its files."""
    return GENERATION in case.companions.files or (case.target or "").endswith(_GENERATES)


def _ends_answer(case: RepositoryCase) -> Checked:
    """Return whether end tokens of two places at least were compared."""
    if unread := case.unusable(GENERATION, *case.companions.token_files):
        return unread
    if not generates(case):
        is_known = case.target is not None and not case.is_custom
        unneeded = Checked("unneeded", f"{case.target} does not generate text")
        unknown = Checked("incomparable", "whether the model generates text is not known")
        return unneeded if is_known else unknown
    declared, ids_by_place = dict(_declared_ends(case)), end_ids(case)
    for (file, key), ids in declared.items():
        if ids != ids_by_place.get((file, key)):
            return Checked("incomparable", f"{key} of {file} is not an id of the vocabulary")
    values = (case.companions.object(file) or {} for file in (SPECIAL, TOKENIZER_CONFIG))
    if len({text_of_token(one.get("eos_token")) for one in values} - {None}) > 1:
        text = f"eos_token of {SPECIAL} and of {TOKENIZER_CONFIG} differ"
        return Checked("incomparable", text)
    if not declared:
        return case.absence("no file names an end token")
    ends = _ends_text(declared)
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
    file, text = case.companions.end_token
    ids = case.companions.ids_of(text)
    if not ids or text in case.companions.id_by_text or _SPECIAL_FORM.search(text):
        return None
    return ChatTurnsWrong(
        says=((file, "eos_token", value_text(text)),),
        reason=f"eos_token of {file} is {quoted(text)}, an ordinary word of the vocabulary "
        f"({_ids_text(ids)}) and not an added token: generation ends wherever it occurs",
        fix=f"set eos_token of {file} to the special token at which the model was trained to stop, "
        f"and {END_ID} of {GENERATION} to its id",
    )


def _declared_ends(case: RepositoryCase) -> Iterator[tuple[tuple[str, str], frozenset[int]]]:
    generation = case.companions.object(GENERATION) or {}
    declared = [(case.config_file, END_ID, case.config.get(END_ID))]
    part = case.text_part()
    if declared[0][2] is None and part and part[1].get(END_ID) != case.default(END_ID, part[0]):
        declared = [(case.config_file, f"{part[0]}.{END_ID}", part[1].get(END_ID) or ())]
    declared.append((GENERATION, END_ID, generation.get(END_ID)))
    for file, key, value in declared:
        if value is not None:
            yield (file, key), frozenset(special_ids_of(value))
    file, text = case.companions.end_token
    if text:
        yield (file, f"eos_token {text}"), case.companions.ids_of(text)


def _ends_text(ids_by_place: Mapping[tuple[str, str], frozenset[int]]) -> str:
    places = ids_by_place.items()
    return ", ".join(f"{_ids_text(ids)} by {key} of {file}" for (file, key), ids in places)


def _ids_text(ids: frozenset[int]) -> str:
    return value_text(min(ids) if len(ids) == 1 else sorted(ids))
