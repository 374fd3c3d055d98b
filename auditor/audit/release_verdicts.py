"""The verdicts of releases of transformers on an audited checkpoint (`--for transformers==...`)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from auditor.audit.model import declaration_of, examine_undiagnosed
from auditor.audit.options import Options
from auditor.checkpoint.selecting import ADAPTER_CONFIG
from auditor.checkpoint.snapshot import Snapshot
from auditor.companions.companion_files import PROCESSORS, TOKENIZER_CONFIG
from auditor.containers.safetensors import Header
from auditor.containers.weight_formats import Table
from auditor.engines.knowledge import value_at
from auditor.engines.release_data import LIBRARY, numbers_of, release_records, releases_named
from auditor.engines.release_subject import ReadCheckpoint
from auditor.engines.releases import (
    judge_release,
    unknown_release,
    writer_notes,
)
from auditor.engines.results import EngineVerdict
from auditor.errors import CheckpointError
from auditor.findings import Missing, StoredBuffer
from auditor.report import Report, Unaudited

_TIED_ONCE = (4, 35, 0)


def is_release(engine: str) -> bool:
    """Whether an engine's name is that of a release, such as `transformers 5.0.0`."""
    return engine.startswith(LIBRARY)


def release_verdicts(
    outcome: Report | Unaudited, snapshot: Snapshot | None, releases: list[str]
) -> Iterator[EngineVerdict]:
    """Yield the verdict of each release, which has a name such as `transformers 5.0.0`."""
    records = release_records()
    try:
        subject = read_checkpoint(outcome, snapshot) if snapshot else outcome_detail(outcome)
    except CheckpointError as error:
        subject = str(error)
    for name in releases:
        version = name.removeprefix(LIBRARY).strip(" =")
        if isinstance(subject, str):
            yield unknown_release(records, version, subject)
        else:
            yield judge_release(records, version, subject)


def of_nested_class(
    outcome: Report | Unaudited, snapshot: Snapshot, options: Options
) -> Report | Unaudited:
    """Return the outcome for the class that stands in text_config alone, where 4.57 wrote it."""
    config = snapshot.config.values if snapshot.config else {}
    names = value_at(config, "text_config.architectures")
    is_nested = isinstance(names, list) and len(names) == 1 and isinstance(names[0], str)
    if not is_nested or config.get("architectures") or options.target:
        return outcome
    return examine_undiagnosed(snapshot, replace(options, target=names[0], engines=()))


def notes_on_writer(outcome: Report | Unaudited, snapshot: Snapshot) -> tuple[str, ...]:
    """Return what the declared version of transformers could not have written."""
    try:
        subject = read_checkpoint(outcome, snapshot)
    except CheckpointError:
        return ()
    return () if isinstance(subject, str) else tuple(writer_notes(release_records(), subject))


def expanded(engines: Sequence[str]) -> tuple[str, ...]:
    """Return the engines, with the releases in the place of a condition: `transformers>=5`."""
    found: list[str] = []
    for engine in engines:
        is_condition = is_release(engine) and " " not in engine
        found += releases_named(engine) if is_condition else (engine,)
    return tuple(dict.fromkeys(found))


def outcome_detail(outcome: Report | Unaudited) -> str:
    """Return why a model was not audited."""
    return outcome.detail if isinstance(outcome, Unaudited) else "its files were not read"


def read_checkpoint(outcome: Report | Unaudited, snapshot: Snapshot) -> ReadCheckpoint | str:
    """Return the checkpoint as a release finds it, or why no release was asked.

    Raise CheckpointError for a config that cannot be read.
    """
    texts = {one.name: one.values for one in snapshot.companions or ()}
    tokenizer = texts.get(TOKENIZER_CONFIG)
    processor = next((texts[name] for name in PROCESSORS if name in texts), None)
    if snapshot.config is None and (tokenizer is not None or processor is not None):
        return ReadCheckpoint(tokenizer=tokenizer, processor=processor, is_companion=True)
    if snapshot.config is None and isinstance(outcome, Unaudited):
        return outcome.detail
    if snapshot.config is None or snapshot.config.name == ADAPTER_CONFIG:
        return "only a model with config.json in its root folder was compared with releases"
    declared = declaration_of(snapshot)
    if declared is None:
        return "config.json declares no model"
    values: Mapping[str, Any] = declared.config.values
    stored = frozenset(
        tensor.name
        for head in snapshot.headers
        if isinstance(head.parsed, Header | Table)
        for tensor in head.parsed.tensors
    )
    report = outcome.load_report
    unread = ""
    if report is None or not isinstance(outcome, Report):
        unread = "what it would load could not be computed"
    elif (
        not declared.config.architectures and value_at(values, "text_config.architectures") is None
    ):
        unread = "config.json names no class"
    elif snapshot.unopened or outcome.unread:
        unread = "some weights were not read"
    return ReadCheckpoint(
        config=values,
        class_name=outcome.target,
        model_type=declared.config.model_type,
        has_code="auto_map" in values,
        stored=stored,
        missing=report.missing if report else (),
        unexpected=report.unexpected if report else (),
        mismatched=_other_shapes(outcome, report),
        buffers=_names(outcome, StoredBuffer),
        absent=_names(outcome, Missing),
        unread=unread,
        packing=declared.quantization.method if declared.quantization else "",
        is_saved=_is_saved(values, snapshot),
        tokenizer=tokenizer,
        processor=processor,
    )


def _is_saved(config: Mapping[str, Any], snapshot: Snapshot) -> bool:
    """Whether a version wrote the files that stores safetensors and each tied tensor once."""
    version = config.get("transformers_version")
    are_safe = all(head.name.endswith(".safetensors") for head in snapshot.headers)
    return are_safe and isinstance(version, str) and numbers_of(version) >= _TIED_ONCE


def _other_shapes(outcome: Report | Unaudited, report: Any) -> tuple[str, ...]:
    """Return the names with other shapes, without those of experts of which one is missing."""
    names = tuple(one.name for one in report.mismatched) if report else ()
    return () if _names(outcome, Missing) else names


def _names(outcome: Report | Unaudited, kind: Any) -> tuple[str, ...]:
    return tuple(
        name for finding in outcome.findings if kind.describes(finding) for name in finding.names
    )
