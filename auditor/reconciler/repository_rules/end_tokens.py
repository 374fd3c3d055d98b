"""The tokens at which generation stops, by the tokenizer, the config and the generation config.

A list may name more than the others do; it is wrong where none of the three has all. An id that no
row answers is a finding of its own, and no end.
"""

from collections.abc import Iterator

from auditor.companions.companion_files import GENERATION, SPECIAL, TOKENIZER_CONFIG
from auditor.companions.tokenizer_config import text_of_token
from auditor.reconciler.findings import EosDisagrees, Finding
from auditor.reconciler.repository_rules.repository_case import (
    RepositoryCase,
    special_ids_of,
    value_text,
)

_KEY = "eos_token_id"
_GENERATES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForSpeechSeq2Seq")


def end_token_findings(case: RepositoryCase) -> Iterator[Finding]:
    if GENERATION not in case.companions and not (case.target or "").endswith(_GENERATES):
        return
    rows = case.rows.rows if case.rows else None
    each_place = ((place, _answered(ids, rows)) for place, ids in _said(case))
    said = {place: ids for place, ids in each_place if ids}
    every = frozenset().union(*said.values())
    if len(said) < 2 or every in said.values():  # noqa: PLR2004 - two to disagree
        return
    each = "; ".join(f"{file}: {key} {_ids(ids)}" for (file, key), ids in said.items())
    yield EosDisagrees(
        says=tuple((file, key, value_text(sorted(ids))) for (file, key), ids in said.items()),
        reason=f"{each}; none of them has all",
        fix=f"set {_KEY} of {GENERATION} to {_ids(every)}, or to those of them that are meant",
    )


def _answered(ids: frozenset[int], rows: int | None) -> frozenset[int]:
    return ids if rows is None else frozenset(one for one in ids if one < rows)


def _said(case: RepositoryCase) -> Iterator[tuple[tuple[str, str], frozenset[int]]]:
    if case.config.get(_KEY) is not None:
        yield (case.config_file, _KEY), frozenset(special_ids_of(case.config[_KEY]))
    elif (part := case.text_part()) and part[1].get(_KEY) != case.default(_KEY, part[0]):
        yield (case.config_file, f"{part[0]}.{_KEY}"), frozenset(special_ids_of(part[1].get(_KEY)))
    generation = case.object(GENERATION)
    if generation is not None:
        yield (GENERATION, _KEY), frozenset(special_ids_of(generation.get(_KEY)))
    for file in (TOKENIZER_CONFIG, SPECIAL):
        of = case.object(file)
        text = text_of_token(of.get("eos_token")) if of else None
        if text is not None:
            yield (file, f"eos_token {text}"), case.ids_of(text)
            return


def _ids(ids: frozenset[int]) -> str:
    return value_text(min(ids) if len(ids) == 1 else sorted(ids))
