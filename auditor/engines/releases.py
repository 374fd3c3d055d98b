"""The verdict of a release of transformers on a checkpoint: right, or what becomes of it.

What the release reads is compared with what the release read that wrote the checkpoint. A verdict
is "right" only if names, ties and values agree and such a save was tried.
"""

from collections.abc import Iterator, Mapping

from auditor.engines.differences import kind_of
from auditor.engines.release_configs import parts_of
from auditor.engines.release_data import Releases, numbers_of, release_name
from auditor.engines.release_names import names_read, tied_groups, ties_read
from auditor.engines.release_settings import companions_read, config_read, forward_changes
from auditor.engines.release_subject import FIRST_FIVE, ReadCheckpoint, ReleaseReading, Word
from auditor.engines.results import EngineVerdict
from auditor.messages import quoted

_LOADS: Mapping[str, bool | None] = {
    "right": True,
    "wrong-silently": True,
    "warns": True,
    "refuses": False,
    "unknown": None,
}


def judge_release(records: Releases, release: str, subject: ReadCheckpoint) -> EngineVerdict:
    """Return the verdict of a release on a checkpoint."""
    found = tuple(_readings(records, release, subject))
    word = _word(found)
    return EngineVerdict(
        engine=release_name(release),
        version=release,
        date=records.date,
        loads=_LOADS[word],
        verdict=word,
        reasons=tuple(dict.fromkeys(one.reason for one in found if one.word == word)),
        additions={key: value for one in found for key, value in one.additions.items()},
    )


def unknown_release(records: Releases, release: str, reason: str) -> EngineVerdict:
    """Return the verdict of a release that is not asked, with the reason."""
    return EngineVerdict(
        engine=release_name(release),
        version=release,
        date=records.date,
        loads=None,
        verdict="unknown",
        reasons=(reason,),
    )


def _word(found: tuple[ReleaseReading, ...]) -> Word:
    words = {one.word for one in found}
    order: tuple[Word, ...] = ("refuses", "warns", "wrong-silently", "unknown")
    return next((word for word in order if word in words), "right")


def _readings(records: Releases, release: str, subject: ReadCheckpoint) -> Iterator[ReleaseReading]:
    yield from companions_read(records, release, subject)
    if subject.is_companion:
        return
    if subject.model_type is None:
        yield ReleaseReading("unknown", "config.json has no model_type")
        return
    own = records.type(subject.model_type, release)
    if own is None:
        yield _without_type(subject)
        return
    writer = records.writer(subject.config.get("transformers_version"))
    if records.type(subject.model_type, writer) is None:
        writer = records.releases[0]
    parts = parts_of(records, release, subject.config, subject.model_type)
    for part in parts:
        yield from config_read(records, release, writer, part)
    if subject.class_name is None or subject.unread:
        yield ReleaseReading("unknown", subject.unread or "no class was determined")
        return
    if records.of_class(subject.class_name, release) is None:
        if records.of_class(subject.class_name, records.releases[0]) is None:
            yield ReleaseReading("unknown", f"{subject.class_name} was not recorded")
        else:
            yield ReleaseReading("refuses", f"it has no class {subject.class_name}")
        return
    if subject.packing:
        yield ReleaseReading("unknown", f"weights packed by {subject.packing} were not tried")
        return
    yield from names_read(records, release, writer, subject)
    yield from ties_read(records, release, writer, subject)
    yield from forward_changes(records.changes, release, writer, parts)


def _without_type(subject: ReadCheckpoint) -> ReleaseReading:
    if subject.has_code:
        return ReleaseReading("unknown", "the repository's own code was not tried")
    return ReleaseReading(
        "refuses", f"it does not know the model type {quoted(str(subject.model_type))}"
    )


def writer_notes(records: Releases, subject: ReadCheckpoint) -> Iterator[str]:
    """Yield what the declared version of transformers could not have written."""
    version = subject.config.get("transformers_version")
    if not isinstance(version, str) or numbers_of(version) < numbers_of(records.releases[-1]):
        return  # an older version, of which nothing was recorded
    start = f"config.json says that transformers {quoted(version)} wrote it"
    writer = records.writer(version)
    known = [
        bool(records.type(subject.model_type or "", one)) for one in (writer, records.releases[0])
    ]
    if known == [False, True]:
        yield f"{start}, which does not have the model type {quoted(str(subject.model_type))}"
    if numbers_of(version) < FIRST_FIVE and "rope_parameters" in subject.config:
        yield f"{start}, which does not write rope_parameters"
    entry = records.of_class(subject.class_name or "", writer) or {}
    kinds = {kind_of(one) for one in subject.stored}
    for group in tied_groups(entry, subject.config) if subject.is_saved else ():
        both = sorted(group & kinds)
        if len(both) > 1:
            yield f"{start}, which stores {both[0]} and {both[1]} as one tensor; both are stored"
