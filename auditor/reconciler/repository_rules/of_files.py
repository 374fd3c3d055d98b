"""The rules about companion files as a whole, such as generation_config.json and custom code."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from auditor.companions.companion_files import GENERATION, PROCESSORS, TOKENIZER, TOKENIZER_CONFIG
from auditor.companions.generation import LIBRARY, refusals, setting_that_stops_loading
from auditor.findings import (
    BadConfig,
    CodeNotThere,
    Finding,
    GenerationConfigInvalid,
    OfKeys,
    TokenizerNote,
)
from auditor.messages import described, listed, quoted
from auditor.observation import Checked
from auditor.reconciler.repository_rules import (
    chat_templates,
    processors,
    token_ids,
    two_readings,
)
from auditor.reconciler.repository_rules.repository_case import RepositoryCase, value_text


def generation_findings(case: RepositoryCase) -> Iterator[Finding]:
    """Report a generation config that transformers refuses to save, or that makes loading fail."""
    values = case.companions.object(GENERATION)
    fault = _generation_fault(case, values)
    case.checked["generation"] = _generation_answer(case, values, fault)
    if fault:
        reason = f"{fault}: from_pretrained of a model that generates fails over it"
        yield BadConfig(file=GENERATION, reason=reason)
    says = [(one, value_text((values or {}).get(one.key))) for one in refusals(values or {})]
    if says:
        faults = "; ".join(f"{one.key} {value}: {one.why}" for one, value in says)
        keys = ", ".join(dict.fromkeys(one.key for one, _ in says))
        yield GenerationConfigInvalid(
            says=tuple((GENERATION, one.key, value) for one, value in says),
            reason=f"{LIBRARY} warns of it, and refuses to save it once it is changed: {faults}",
            fix=f"remove {keys}, or set what they need",
        )


def _generation_answer(
    case: RepositoryCase, values: Mapping[str, Any] | None, fault: str | None
) -> Checked:
    """Return whether the settings of generation were compared with each other."""
    if unread := case.unusable(GENERATION):
        return unread
    if values is None and case.target is not None and not token_ids.generates(case):
        return Checked("unneeded", f"{case.target} does not generate text")
    if values is None:
        return case.absence(f"there is no {GENERATION}")
    if fault:
        return Checked("incomparable", f"{GENERATION}: {fault}")
    return Checked("compared", f"the settings of {GENERATION} do not contradict each other")


def _generation_fault(case: RepositoryCase, values: Mapping[str, Any] | None) -> str | None:
    """Return what is wrong with generation_config.json; None if it is valid or not JSON.

    A value may have a type that cannot be compared, or the JSON may not be an object. Invalid JSON
    is no fault, because transformers ignores it.
    """
    if values is not None:
        key = setting_that_stops_loading(values)
        what = f"{key} is {value_text(values.get(key))}" if key else "a value"
        return None if key is None else f"{what}, of a type that cannot be compared"
    file = case.companions.files.get(GENERATION)
    try:
        content = json.loads(file.content) if file and file.content else {}
    except (ValueError, RecursionError):
        return None
    return None if isinstance(content, dict) else f"{GENERATION} is {described(content)}, no object"


# Keys for the number of tokens that a model accepts.
_LENGTHS = (
    *("max_seq_length", "max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx"),
    "seq_length",
)


def length_findings(case: RepositoryCase) -> Iterator[Finding]:
    """Report truncation or padding in tokenizer.json, which transformers resets in each call."""
    tokenizer = case.companions.vocabularies.get(TOKENIZER)
    if tokenizer is None:
        return
    part = case.text_part()
    places = (case.settings, case.config, *((part[1],) if part else ()))
    lengths = (values.get(key) for values in places for key in _LENGTHS)
    most = next((length for length in lengths if type(length) is int and length > 0), None)
    cut, padded = tokenizer.truncation, tokenizer.padding
    if cut is not None and most is not None and cut < most:
        what = f"cuts texts after {cut:,} tokens, and the model takes {most:,}"
        yield _length_note("truncation", "max_length", cut, what)
    if padded is not None:
        yield _length_note(
            "padding", "strategy.Fixed", padded, f"pads each text to {padded:,} tokens"
        )


def _length_note(setting: str, key: str, length: int, what: str) -> OfKeys:
    return TokenizerNote(
        says=((TOKENIZER, f"{setting}.{key}", value_text(length)),),
        reason=f"{TOKENIZER} {what}: transformers resets it, other users of the file do not",
        fix=f"set {setting} of {TOKENIZER} to null, unless it is intended",
    )


_CODE = "auto_map"
_CLASS = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\.[A-Za-z_]\w*", re.ASCII)


def code_findings(case: RepositoryCase) -> Iterator[Finding]:
    """Report modules of code that auto_map names and the repository does not contain.

    Weights alone in a folder need no code if transformers has a class of that name.
    """
    maps = {case.config_file: case.config.get(_CODE)}
    for file in (TOKENIZER_CONFIG, *PROCESSORS):
        maps[file] = (case.companions.object(file) or {}).get(_CODE)
    maps = {file: value for file, value in maps.items() if value}
    case.checked["code"] = _code_answer(case, maps)
    if not case.is_complete and not (case.is_local and _needs_code(case)):
        return
    says: list[tuple[str, str, str]] = []
    lacking: set[str] = set()
    for file, value in maps.items():
        for auto, name in _named(value):
            module = _CLASS.fullmatch(name)
            path = f"{module[1].replace('.', '/')}.py" if module else None
            if path is not None and path not in case.names:
                says.append((file, f"{_CODE}.{auto}", value_text(name)))
                lacking.add(path)
    if lacking:
        statements = ", ".join(f"{file}: {key} {value}" for file, key, value in says[:5])
        files = listed(sorted(lacking))
        yield CodeNotThere(
            says=tuple(says),
            reason=f"code is not in the repository: {files} ({statements})",
            fix=f"upload {files}, or name the repository that has it before a --",
        )


def _code_answer(case: RepositoryCase, maps: Mapping[str, object]) -> Checked:
    """Return whether the modules that auto_map names were looked up in the listing."""
    if unread := case.unusable(TOKENIZER_CONFIG, *PROCESSORS):
        return unread
    if not maps:
        return Checked("unneeded", "no file names code of the repository")
    if not case.is_complete:
        return Checked("unread", "not all files of the repository are listed")
    first = next(iter(maps))
    named = [name for value in maps.values() for _, name in _named(value)]
    if "--" in str([*maps.values()]) or not all(map(_CLASS.fullmatch, named)):
        return Checked("incomparable", f"{first} names code that is not in this repository")
    if not named:
        return Checked("incomparable", f"{_CODE} of {first} names no class")
    return Checked("compared", f"the repository has the code that {first} names")


def _needs_code(case: RepositoryCase) -> bool:
    """Whether transformers has no class for the model, so that the code in auto_map is needed."""
    if case.kind is None:
        return True
    classes = {name.rpartition(".")[2] for _, name in _named(case.config.get(_CODE))}
    is_unknown = case.target not in classes or next(iter(case.expected()), None) is None
    return case.is_custom and is_unknown


def _named(names_by_auto: object) -> Iterator[tuple[str, str]]:
    """Yield (auto class, `module.Class`) of auto_map, without classes of other repositories."""
    if isinstance(names_by_auto, list):  # older tokenizers have a list instead of an object
        names_by_auto = {"AutoTokenizer": names_by_auto}
    if not isinstance(names_by_auto, Mapping):
        return
    for auto, names in names_by_auto.items():
        for name in names if isinstance(names, list) else (names,):
            if isinstance(name, str) and "--" not in name and len(name) < 200:  # noqa: PLR2004
                yield quoted(auto)[1:-1], name


_RULES: tuple[Callable[[RepositoryCase], Iterator[Finding]], ...] = (
    token_ids.token_id_findings,
    token_ids.end_token_findings,
    chat_templates.template_findings,
    length_findings,
    generation_findings,
    code_findings,
    processors.processor_findings,
    processors.class_findings,
    two_readings.bins_findings,
    two_readings.side_findings,
)


def file_findings(case: RepositoryCase) -> Iterator[Finding]:
    """Apply all rules; then `case.companions.unread` lists the files that could not be used."""
    for rule in _RULES:
        yield from rule(case)
