"""The stored names as a release of transformers reads them: layouts, missing tensors and ties."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from auditor.engines.differences import kind_of
from auditor.engines.release_data import Entry, Releases, numbers_of
from auditor.engines.release_subject import FIRST_FIVE, ReadCheckpoint, ReleaseReading, Word
from auditor.messages import quoted
from auditor.names.folding import fold

_SHOWN = 3
_EXPERTS = re.compile(r".*\.experts\.\d+\..*", re.DOTALL)


def names_read(
    records: Releases, release: str, writer: str, subject: ReadCheckpoint
) -> Iterator[ReleaseReading]:
    """Yield what a release makes of the stored names, by its saves and the newest release."""
    name = subject.class_name or ""
    yield from _listed_names(records.of_class(name, release) or {}, release, subject)
    saved = records.save(name)
    if saved is None:
        yield ReleaseReading("unknown", f"no save of {name} was tried")
        return
    outcomes = records.outcomes(saved, release)
    listed_buffers = {*outcomes.get("extras", ())}
    extra = [one for one in subject.buffers if kind_of(one) in listed_buffers]
    if extra:
        yield ReleaseReading(
            "warns", f"{_folded(extra)}: stored buffers, listed as unexpected; harmless"
        )
    kinds = {kind_of(one) for one in subject.stored}
    layout = _layout(saved["layouts"], kinds, is_new=numbers_of(writer) >= FIRST_FIVE)
    if layout is None:
        yield ReleaseReading("unknown", "no save with such names was tried")
        return
    is_new = numbers_of(writer) >= FIRST_FIVE
    outcome = outcomes.get(layout, {})
    if outcome == "?" or (layout == "old") is is_new:
        yield from _other_era(outcome)
    else:
        yield from _outcome(outcome, layout, subject.config)


def _listed_names(entry: Entry, release: str, subject: ReadCheckpoint) -> Iterator[ReleaseReading]:
    """Yield the names that a release lists or refuses, beside those of other layouts."""
    if subject.mismatched:
        yield ReleaseReading("refuses", f"{_folded(subject.mismatched)}: other shapes")
    groups = tied_groups(entry, subject.config)
    lost = [one for one in subject.missing if not _is_tied(one, groups, subject.stored)]
    if lost:
        yield ReleaseReading("warns", f"{_folded(lost)}: not stored, starts at random")
    is_old = numbers_of(release) < FIRST_FIVE
    for one in subject.absent:
        word: Word = "warns" if is_old or not _EXPERTS.fullmatch(one) else "refuses"
        if one not in subject.missing and not _is_tied(one, groups, subject.stored):
            yield ReleaseReading(word, f"{_folded((one,))}: not stored")
    ignored = [re.compile(one) for one in entry.get("unexpected", ())]
    extra = [one for one in subject.unexpected if not any(p.search(one) for p in ignored)]
    if extra:
        yield ReleaseReading("warns", f"{_folded(extra)}: stored, and listed as unexpected")


def _layout(layouts: Any, kinds: set[str], *, is_new: bool) -> str | None:
    """Return the layout that has the stored kinds; None if several have some of them."""
    first = "new" if is_new else "old"
    if isinstance(layouts, list):
        return first if first in layouts else layouts[0]
    counts = {name: len(kinds & {*own}) for name, own in layouts.items()}
    most = max(counts.values())
    best = [name for name, count in counts.items() if count == most]
    if any(kinds & {*layouts[name]} - {*layouts[best[0]]} for name in layouts):
        return None
    return first if first in best else best[0]


def _other_era(outcome: Any) -> Iterator[ReleaseReading]:
    """Yield what becomes of a layout whose config another major version wrote: names count."""
    if outcome == "?" or "error" in outcome or outcome.get("mismatched"):
        yield ReleaseReading("unknown", "no save with such names and such a config was tried")
    elif outcome.get("missing") or outcome.get("unexpected"):
        yield _other_names(outcome)


def _other_names(outcome: Mapping[str, Any]) -> ReleaseReading:
    missing, unexpected = outcome.get("missing", 0), outcome.get("unexpected", 0)
    what = f"{missing} kinds of names missing, {unexpected} unexpected"
    return ReleaseReading(
        "warns", f"it knows other names: {what}, such as {quoted(outcome['such'])}"
    )


def _outcome(outcome: Any, layout: str, config: Mapping[str, Any]) -> Iterator[ReleaseReading]:
    if error := outcome.get("error"):
        depends = re.search(r"config:|size|mismatch|shape|no attribute", error, re.IGNORECASE)
        is_bridged = _is_bridged(config)  # keys of both major versions stand side by side
        word: Word = "unknown" if depends or is_bridged else "refuses"
        yield ReleaseReading(word, f"it refused such a save: {error}")
        return
    if outcome.get("mismatched"):
        yield ReleaseReading("unknown", "it refused such a save: other shapes")
    if outcome.get("missing") or outcome.get("unexpected"):
        yield _other_names(outcome)
    elif forward := outcome.get("forward"):
        word = "unknown" if _is_bridged(config) else "refuses"
        yield ReleaseReading(word, f"its first forward pass failed: {forward}")
    elif outcome.get("equal") is False:
        yield ReleaseReading(
            "unknown", f"other outputs of a {layout} save, for a reason not recorded"
        )


def _is_bridged(config: Mapping[str, Any]) -> bool:
    inner = config.get("text_config")
    levels = (config, inner if isinstance(inner, Mapping) else {})
    return any(one.get("rope_parameters") and one.get("rope_scaling") for one in levels)


def _folded(names: Any) -> str:
    patterns = fold(names)
    more = len(patterns) - _SHOWN
    return ", ".join(patterns[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


# --- ties ---------------------------------------------------------------------------------------


def _flags(config: Mapping[str, Any]) -> str:
    words = {True: "true", False: "false"}
    top = words.get(config.get("tie_word_embeddings", None), "absent")
    inner = config.get("text_config")
    if not isinstance(inner, Mapping):
        return f"tie {top}"
    return f"tie {top} {words.get(inner.get('tie_word_embeddings', None), '')}".strip()


def tied_groups(entry: Entry, config: Mapping[str, Any]) -> list[frozenset[str]]:
    """Return the kinds of tensors that are one tensor in a release."""
    return [frozenset(group) for group in entry.get(_flags(config), ())]


def _is_tied(name: str, groups: list[frozenset[str]], stored: frozenset[str]) -> bool:
    kinds = {kind_of(one) for one in stored}
    return any(kind_of(name) in group and kinds & group for group in groups)


def ties_read(
    records: Releases, release: str, writer: str, subject: ReadCheckpoint
) -> Iterator[ReleaseReading]:
    name = subject.class_name or ""
    own, meant = records.of_class(name, release), records.of_class(name, writer)
    if own is None or meant is None or not own.get("built") or not meant.get("built"):
        yield ReleaseReading("unknown", f"the ties of {name} were not recorded")
        return
    kinds = {kind_of(one) for one in subject.stored}
    read, wanted = tied_groups(own, subject.config), tied_groups(meant, subject.config)
    is_old = numbers_of(release) < FIRST_FIVE
    for group in read:
        both = sorted(group & kinds)
        if len(both) < 2:  # noqa: PLR2004 - a tie has two ends
            continue
        shown = " and ".join(both[:2])
        if not any({*both} <= one for one in wanted):
            if is_old:
                yield ReleaseReading("wrong-silently", f"it ties {shown}, which are stored as two")
            elif group - kinds:
                third = min(group - kinds)
                yield ReleaseReading("unknown", f"whether it ties {third} to {shown} was not tried")
        elif is_old or _reads_flag(records, release, subject):
            ends = {one.rpartition(".")[0].rpartition(".")[2] for one in both}
            is_apart = subject.is_saved and len(ends) > 1  # else copies of one embedding
            word: Word = "wrong-silently" if is_apart else "unknown"
            yield ReleaseReading(word, f"it ties {shown}, both stored: only equal ones are right")
    for group in wanted:
        here = sorted(group & kinds)
        lost = [one for one in group - kinds if not any(one in g and g & kinds for g in read)]
        if here and lost and not any(group <= one for one in read):
            yield ReleaseReading(
                "warns", f"{min(lost)}: not stored, and it is not tied to {here[0]}"
            )


def _reads_flag(records: Releases, release: str, subject: ReadCheckpoint) -> bool:
    entry = records.type(subject.model_type or "", release) or {}
    return bool(entry.get("tie_in_code") or entry.get("scales"))
