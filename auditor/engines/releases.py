"""The verdict of a release of transformers on a checkpoint: right, or what becomes of it.

What the release reads is compared with what the release read that wrote the checkpoint. A verdict
is "right" only if names, ties and values agree and such a save was tried.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from msgspec import Struct

from auditor.engines.differences import kind_of
from auditor.engines.release_configs import (
    Difference,
    Part,
    differences,
    has_rope_keys,
    other_layers,
    parts_of,
    refuses_null,
    rope_additions,
    ropes,
)
from auditor.engines.release_data import (
    Entry,
    ForwardChange,
    Releases,
    numbers_of,
    release_name,
)
from auditor.engines.verdict import EngineVerdict
from auditor.messages import described, listed, quoted
from auditor.names.folding import fold

Word = Literal["right", "wrong-silently", "warns", "refuses", "unknown"]

_FIVE = (5, 0, 0)
_LOADS: Mapping[str, bool | None] = {
    "right": True,
    "wrong-silently": True,
    "warns": True,
    "refuses": False,
    "unknown": None,
}
_SHOWN = 3
_EXPERTS = re.compile(r".*\.experts\.\d+\..*", re.DOTALL)


class ReadCheckpoint(Struct, frozen=True, kw_only=True):
    """A checkpoint as a release of transformers finds it."""

    config: Mapping[str, Any] = {}
    class_name: str | None = None
    model_type: str | None = None
    has_code: bool = False  # whether the repository brings its own classes
    stored: frozenset[str] = frozenset()
    missing: tuple[str, ...] = ()  # as the newest release lists them
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()
    buffers: tuple[str, ...] = ()  # stored buffers that the model computes itself
    absent: tuple[str, ...] = ()  # stored names that the layout lacks: an expert's weight
    unread: str = ""  # why names or shapes are not all known; "" if they are
    packing: str = ""  # the quantization method
    # Whether save_pretrained wrote the files, which stores tied tensors once.
    is_saved: bool = False
    tokenizer: Mapping[str, Any] | None = None  # tokenizer_config.json
    processor: Mapping[str, Any] | None = None  # preprocessor_config.json
    is_companion: bool = False  # a tokenizer or processor without a model


class Reading(NamedTuple):
    """One thing that a release makes of the checkpoint."""

    word: Word
    reason: str
    additions: Mapping[str, Any] = {}


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


def _word(found: tuple[Reading, ...]) -> Word:
    words = {one.word for one in found}
    order: tuple[Word, ...] = ("refuses", "warns", "wrong-silently", "unknown")
    return next((word for word in order if word in words), "right")


def _readings(records: Releases, release: str, subject: ReadCheckpoint) -> Iterator[Reading]:
    yield from _companions(records, release, subject)
    if subject.is_companion:
        return
    if subject.model_type is None:
        yield Reading("unknown", "config.json has no model_type")
        return
    own = records.type(subject.model_type, release)
    if own is None:
        yield _without_type(records, subject)
        return
    writer = records.writer(subject.config.get("transformers_version"))
    if records.type(subject.model_type, writer) is None:
        writer = records.releases[0]
    parts = parts_of(records, release, subject.config, subject.model_type)
    for part in parts:
        yield from _config(records, release, writer, part)
    if subject.class_name is None or subject.unread:
        yield Reading("unknown", subject.unread or "no class was determined")
        return
    if records.of_class(subject.class_name, release) is None:
        if records.of_class(subject.class_name, records.releases[0]) is None:
            yield Reading("unknown", f"{subject.class_name} was not recorded")
        else:
            yield Reading("refuses", f"it has no class {subject.class_name}")
        return
    if subject.packing:
        yield Reading("unknown", f"weights packed by {subject.packing} were not tried")
        return
    yield from _names(records, release, writer, subject)
    yield from _ties(records, release, writer, subject)
    yield from _forward(records.changes, release, writer, parts)


def _without_type(records: Releases, subject: ReadCheckpoint) -> Reading:
    if subject.has_code:
        return Reading("unknown", "the repository's own code was not tried")
    return Reading("refuses", f"it does not know the model type {quoted(str(subject.model_type))}")


# --- config.json --------------------------------------------------------------------------------


def _config(records: Releases, release: str, writer: str, part: Part) -> Iterator[Reading]:
    own, meant = records.type(part.model_type, release), records.type(part.model_type, writer)
    facts = records.facts[release]
    if own is None:
        why = f"it does not know the model type {quoted(part.model_type)} of {part.path[:-1]}"
        known = any(records.type(part.model_type, one) for one in records.releases)
        yield Reading("refuses" if known else "unknown", why)
        return
    for key, value in part.config.items():
        if value is None and refuses_null(own, key) and not refuses_null(meant or {}, key):
            yield Reading("refuses", f"it refuses null as {part.path}{key}")
        if not facts.floats and _has_float(value):
            yield Reading("refuses", f"it does not read {part.path}{key}, written as a __float__")
    if meant is None:
        return
    for one in differences(meant, own, part):
        yield _as_reading(one)
    if own is not meant and not other_layers(meant, part.config):
        if key := other_layers(own, part.config):
            yield Reading("wrong-silently", f"{part.path}{key} instead of layer_types")
    yield from _rope(records, release, meant, own, part)
    yield from _scales(meant, own, part)


def _has_float(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return any(isinstance(one, Mapping) and "__float__" in one for one in values[:64])


def _as_reading(one: Difference) -> Reading:
    meant = described(one.meant)
    if one.is_ignored:
        return Reading("wrong-silently", f"it ignores {one.path}, which is {meant}")
    word: Word = "refuses" if _is_size(one) else "wrong-silently"
    return Reading(word, f"{one.path} {described(one.read)} instead of {meant}")


def _is_size(one: Difference) -> bool:
    """Whether another value of a key makes other shapes."""
    key = one.path.rpartition(".")[2]
    is_count = type(one.meant) is int and type(one.read) is int
    return is_count and bool(re.search(r"(size|dim|experts|heads|layers|width|channels)\Z", key))


def _rope(
    records: Releases, release: str, meant: Entry, own: Entry, part: Part
) -> Iterator[Reading]:
    for level in _rope_levels(part.config):
        kind = level.get("rope_type", level.get("type"))
        types = records.facts[release].rope_types
        if isinstance(kind, str) and kind not in {*types, "mrope"} and kind == "su":
            if numbers_of(release) >= _FIVE:
                yield Reading("refuses", f"it does not know the rope type {quoted(kind)}")
            return
    wanted, read = ropes(meant, part.config), ropes(own, part.config)
    if wanted is None and read is None and "rope" not in own and "rope" not in meant:
        return
    if own.get("rope_needs") and not _rope_keys(part.config):
        yield Reading("refuses", f"it needs rope_scaling in {part.path or 'config.json'}")
    if wanted is None or read is None:
        if has_rope_keys(part):
            yield Reading("unknown", f"how it reads the rope keys of {part.model_type} is not recorded")
        return
    if wanted == read:
        return
    added = rope_additions(own, part.config, wanted)
    newest = records.type(part.model_type, records.releases[0]) or meant
    if any(ropes(entry, {**part.config, **added}) != wanted for entry in (meant, newest)):
        added = {}
    additions = {part.path + key: value for key, value in added.items()}
    how = f": write {listed(list(additions))} as well" if additions else ""
    thetas = [sorted({one.theta or 0.0 for one in found}) for found in (read, wanted)]
    what = "other rotary frequencies"
    if thetas[0] != thetas[1]:
        shown = [" and ".join(f"{one:.15g}" for one in found) for found in thetas]
        what = f"rope theta {shown[0]} instead of {shown[1]}"
    elif {one.scaling for one in read} != {one.scaling for one in wanted}:
        what = "another scaling of the rotary frequencies"
    yield Reading("wrong-silently", f"{part.path}{what}{how}", additions)


def _rope_keys(config: Mapping[str, Any]) -> bool:
    return isinstance(config.get("rope_scaling"), Mapping)


def _rope_levels(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for key in ("rope_scaling", "rope_parameters"):
        value = config.get(key)
        if isinstance(value, Mapping):
            yield value
            yield from (one for one in value.values() if isinstance(one, Mapping))


def _scales(meant: Entry, own: Entry, part: Part) -> Iterator[Reading]:
    """Yield how a decoder's outputs are scaled, which T5 derives from the tie flag or a key."""
    names = ("scales", "tie_in_code")
    if not any(entry.get(name) for entry in (meant, own) for name in names):
        return
    if _is_scaled(meant, part.config) is not _is_scaled(own, part.config):
        yield Reading("wrong-silently", "the scaling of the decoder's outputs")


def _is_scaled(entry: Entry, config: Mapping[str, Any]) -> bool | None:
    if entry.get("scales"):
        is_tied = config.get("tie_word_embeddings", True) is True
        return bool(config.get("scale_decoder_outputs", is_tied))
    if entry.get("tie_in_code"):
        return config.get("tie_word_embeddings", True) is True
    return False


# --- names --------------------------------------------------------------------------------------


def _names(
    records: Releases, release: str, writer: str, subject: ReadCheckpoint
) -> Iterator[Reading]:
    name = subject.class_name or ""
    entry = records.of_class(name, release) or {}
    if subject.mismatched:
        yield Reading("refuses", f"{_folded(subject.mismatched)}: other shapes")
    is_old = numbers_of(release) < _FIVE
    groups = _groups(entry, subject.config)
    for missing in subject.missing:
        if not _is_tied(missing, groups, subject.stored):
            yield Reading("warns", f"{_folded((missing,))}: not stored, starts at random")
    for one in subject.absent:
        word: Word = "warns" if is_old or not _EXPERTS.fullmatch(one) else "refuses"
        if one not in subject.missing and not _is_tied(one, groups, subject.stored):
            yield Reading(word, f"{_folded((one,))}: not stored")
    ignored = [re.compile(one) for one in entry.get("unexpected", ())]
    extra = [one for one in subject.unexpected if not any(p.search(one) for p in ignored)]
    if extra:
        yield Reading("warns", f"{_folded(extra)}: stored, and listed as unexpected")
    saved = records.save(name)
    if saved is None:
        yield Reading("unknown", f"no save of {name} was tried")
        return
    outcomes = records.outcomes(saved, release)
    listed_buffers = {*outcomes.get("extras", ())}
    extra = [one for one in subject.buffers if kind_of(one) in listed_buffers]
    if extra:
        yield Reading("warns", f"{_folded(extra)}: stored buffers, listed as unexpected; harmless")
    kinds = {kind_of(one) for one in subject.stored}
    layout = _layout(saved["layouts"], kinds, is_new=numbers_of(writer) >= _FIVE)
    if layout is None:
        yield Reading("unknown", "no save with such names was tried")
        return
    is_new = numbers_of(writer) >= _FIVE
    outcome = outcomes.get(layout, {})
    if outcome == "?" or (layout == "old") is is_new:
        yield from _other_era(outcome)
    else:
        yield from _outcome(outcome, layout, subject.config)


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


def _other_era(outcome: Any) -> Iterator[Reading]:
    """Yield what becomes of a layout whose config another major version wrote: names count."""
    if outcome == "?" or "error" in outcome or outcome.get("mismatched"):
        yield Reading("unknown", "no save with such names and such a config was tried")
    elif outcome.get("missing") or outcome.get("unexpected"):
        yield _other_names(outcome)


def _other_names(outcome: Mapping[str, Any]) -> Reading:
    missing, unexpected = outcome.get("missing", 0), outcome.get("unexpected", 0)
    what = f"{missing} kinds of names missing, {unexpected} unexpected"
    return Reading("warns", f"it knows other names: {what}, such as {quoted(outcome['such'])}")


def _outcome(outcome: Any, layout: str, config: Mapping[str, Any]) -> Iterator[Reading]:
    if error := outcome.get("error"):
        depends = re.search(r"size|mismatch|shape|no attribute", error, re.IGNORECASE)
        is_bridged = _is_bridged(config)  # keys of both major versions stand side by side
        word: Word = "unknown" if depends or is_bridged else "refuses"
        yield Reading(word, f"it refused such a save: {error}")
        return
    if outcome.get("mismatched"):
        yield Reading("unknown", "it refused such a save: other shapes")
    if outcome.get("missing") or outcome.get("unexpected"):
        yield _other_names(outcome)
    elif forward := outcome.get("forward"):
        word = "unknown" if _is_bridged(config) else "refuses"
        yield Reading(word, f"its first forward pass failed: {forward}")
    elif outcome.get("equal") is False:
        yield Reading("unknown", f"other outputs of a {layout} save, for a reason not recorded")


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


def _groups(entry: Entry, config: Mapping[str, Any]) -> list[frozenset[str]]:
    """Return the kinds of tensors that are one tensor in a release."""
    return [frozenset(group) for group in entry.get(_flags(config), ())]


def _is_tied(name: str, groups: list[frozenset[str]], stored: frozenset[str]) -> bool:
    kinds = {kind_of(one) for one in stored}
    return any(kind_of(name) in group and kinds & group for group in groups)


def _ties(
    records: Releases, release: str, writer: str, subject: ReadCheckpoint
) -> Iterator[Reading]:
    name = subject.class_name or ""
    own, meant = records.of_class(name, release), records.of_class(name, writer)
    if own is None or meant is None or not own.get("built") or not meant.get("built"):
        yield Reading("unknown", f"the ties of {name} were not recorded")
        return
    kinds = {kind_of(one) for one in subject.stored}
    read, wanted = _groups(own, subject.config), _groups(meant, subject.config)
    is_old = numbers_of(release) < _FIVE
    for group in read:
        both = sorted(group & kinds)
        if len(both) < 2:  # noqa: PLR2004 - a tie has two ends
            continue
        shown = " and ".join(both[:2])
        if not any({*both} <= one for one in wanted):
            if is_old:
                yield Reading("wrong-silently", f"it ties {shown}, which are stored as two")
            elif group - kinds:
                lost = min(group - kinds)
                yield Reading("unknown", f"whether it ties {lost} to {shown} was not tried")
        elif is_old or _reads_flag(records, release, subject):
            ends = {one.rpartition(".")[0].rpartition(".")[2] for one in both}
            is_apart = subject.is_saved and len(ends) > 1  # else copies of one embedding
            word: Word = "wrong-silently" if is_apart else "unknown"
            yield Reading(word, f"it ties {shown}, both stored: only equal ones are right")
    for group in wanted:
        here = sorted(group & kinds)
        lost = [one for one in group - kinds if not any(one in g and g & kinds for g in read)]
        if here and lost and not any(group <= one for one in read):
            yield Reading("warns", f"{lost[0]}: not stored, and it is not tied to {here[0]}")


def _reads_flag(records: Releases, release: str, subject: ReadCheckpoint) -> bool:
    entry = records.type(subject.model_type or "", release) or {}
    return bool(entry.get("tie_in_code") or entry.get("scales"))


# --- forward code and companions ----------------------------------------------------------------


def _forward(
    changes: tuple[ForwardChange, ...], release: str, writer: str, parts: list[Part]
) -> Iterator[Reading]:
    for change in changes:
        limit = numbers_of(change.before)
        if (numbers_of(release) < limit) is (numbers_of(writer) < limit):
            continue
        for part in parts:
            if part.model_type == change.model_type and _applies(change, part.config):
                yield Reading("unknown", f"the code of its class changed in {change.before}: {change.why}")


def _applies(change: ForwardChange, config: Mapping[str, Any]) -> bool:
    return all(config.get(key) == value for key, value in change.when.items()) and not (
        change.unless and all(config.get(key) == value for key, value in change.unless.items())
    )


_KINDS_OF_COMPANIONS = ("image_processor_type", "feature_extractor_type", "processor_class")


def _companions(records: Releases, release: str, subject: ReadCheckpoint) -> Iterator[Reading]:
    facts = records.facts[release]
    is_old = numbers_of(release) < _FIVE
    if (settings := subject.tokenizer) is not None:
        name = settings.get("tokenizer_class")
        if isinstance(name, str) and not _has_class(name, facts.companions):
            yield Reading("refuses", f"it has no tokenizer class {quoted(name)}")
        if isinstance(settings.get("extra_special_tokens"), list) and is_old:
            yield Reading("refuses", "it refuses a list as extra_special_tokens of the tokenizer")
        is_new = "backend" in settings or "added_tokens_decoder" not in settings
        if isinstance(name, str) and name.startswith("Llama") and is_new is is_old:
            yield Reading("wrong-silently", "LlamaTokenizer gives other ids in transformers 4 and 5")
    if (settings := subject.processor) is not None:
        for key in _KINDS_OF_COMPANIONS:
            name = settings.get(key)
            if isinstance(name, str) and not _has_class(name, facts.companions):
                yield Reading("refuses", f"it has no class {quoted(name)}")


def _has_class(name: str, known: frozenset[str]) -> bool:
    return not known.isdisjoint({name, f"{name}Fast", name.removesuffix("Fast")})
