"""The config and the settings of tokenizers as a release of transformers reads them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from auditor.engines.release_configs import (
    NestedConfig,
    OtherValue,
    Rope,
    differences,
    has_rope_keys,
    is_recorded,
    other_layers,
    refuses_null,
    rope_additions,
    ropes,
)
from auditor.engines.release_data import Entry, ForwardChange, Releases, numbers_of
from auditor.engines.release_subject import FIRST_FIVE, ReadCheckpoint, ReleaseReading, Word
from auditor.messages import described, listed, quoted

_RENAMED = "su"  # a rope type that transformers 4 reads as longrope


def config_read(
    records: Releases, release: str, writer: str, part: NestedConfig
) -> Iterator[ReleaseReading]:
    own, meant = records.type(part.model_type, release), records.type(part.model_type, writer)
    facts = records.facts[release]
    if own is None:
        why = f"it does not know the model type {quoted(part.model_type)} of {part.path[:-1]}"
        known = any(records.type(part.model_type, one) for one in records.releases)
        yield ReleaseReading("refuses" if known else "unknown", why)
        return
    for key, value in part.config.items():
        if value is None and refuses_null(own, key) and not refuses_null(meant or {}, key):
            yield ReleaseReading("refuses", f"it refuses null as {part.path}{key}")
        if not facts.floats and _has_float(value):
            yield ReleaseReading(
                "refuses", f"it does not read {part.path}{key}, written as a __float__"
            )
    if meant is None:
        return  # a part to which the release gives a model type of its own
    if not (is_recorded(meant) and is_recorded(own)):
        yield ReleaseReading("unknown", f"the config of {part.model_type} was not recorded")
        return
    for one in differences(meant, own, part):
        yield _as_reading(one)
    key = other_layers(own, part.config)
    if key and not other_layers(meant, part.config):
        yield ReleaseReading("wrong-silently", f"{part.path}{key} instead of layer_types")
    yield from _rope(records, release, meant, own, part)
    yield from _scales(meant, own, part)


def _has_float(value: Any) -> bool:
    values = value if isinstance(value, list) else [value]
    return any(isinstance(one, Mapping) and "__float__" in one for one in values[:64])


def _as_reading(one: OtherValue) -> ReleaseReading:
    meant = described(one.meant)
    if one.is_ignored:
        return ReleaseReading("wrong-silently", f"it ignores {one.path}, which is {meant}")
    word: Word = "refuses" if _is_size(one) else "wrong-silently"
    return ReleaseReading(word, f"{one.path} {described(one.read)} instead of {meant}")


def _is_size(one: OtherValue) -> bool:
    """Whether another value of a key makes other shapes."""
    key = one.path.rpartition(".")[2]
    is_count = type(one.meant) is int and type(one.read) is int
    return is_count and bool(re.search(r"(size|dim|experts|heads|layers|width|channels)\Z", key))


def _rope(
    records: Releases, release: str, meant: Entry, own: Entry, part: NestedConfig
) -> Iterator[ReleaseReading]:
    kinds = [one.get("rope_type", one.get("type")) for one in _rope_levels(part.config)]
    if _RENAMED in kinds:
        if numbers_of(release) >= FIRST_FIVE:
            yield ReleaseReading("refuses", f"it does not know the rope type {quoted(_RENAMED)}")
        return
    wanted, read = ropes(meant, part.config), ropes(own, part.config)
    if own.get("rope_needs") and not isinstance(part.config.get("rope_scaling"), Mapping):
        yield ReleaseReading("refuses", f"it needs rope_scaling in {part.path or 'config.json'}")
    if wanted is None or read is None:
        if wanted and "rope" not in own and wanted == ropes(meant, {}):
            return  # the defaults of later keys are constants of the older code
        if ("rope" in own or "rope" in meant) and has_rope_keys(part):
            what = f"the rope keys of {part.model_type}"
            yield ReleaseReading("unknown", f"how it reads {what} is not recorded")
        return
    if wanted != read:
        newest = records.type(part.model_type, records.releases[0]) or meant
        added = rope_additions(own, part.config, wanted)
        if any(ropes(entry, {**part.config, **added}) != wanted for entry in (meant, newest)):
            added = {}
        yield _other_rope(part.path, wanted, read, added)


def _other_rope(
    path: str, wanted: frozenset[Rope], read: frozenset[Rope], added: Mapping[str, Any]
) -> ReleaseReading:
    """Return what differs between the frequencies that were meant and those that are read."""
    additions = {path + key: value for key, value in added.items()}
    how = f": write {listed(list(additions))} as well" if additions else ""
    thetas = [sorted({one.theta or 0.0 for one in found}) for found in (read, wanted)]
    what = "other rotary frequencies"
    if thetas[0] != thetas[1]:
        shown = [" and ".join(f"{one:.15g}" for one in found) for found in thetas]
        what = f"rope theta {shown[0]} instead of {shown[1]}"
    elif {one.scaling for one in read} != {one.scaling for one in wanted}:
        what = "another scaling of the rotary frequencies"
    return ReleaseReading("wrong-silently", f"{path}{what}{how}", additions)


def _rope_levels(config: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for key in ("rope_scaling", "rope_parameters"):
        value = config.get(key)
        if isinstance(value, Mapping):
            yield value
            yield from (one for one in value.values() if isinstance(one, Mapping))


def _scales(meant: Entry, own: Entry, part: NestedConfig) -> Iterator[ReleaseReading]:
    """Yield how a decoder's outputs are scaled, which T5 derives from the tie flag or a key."""
    names = ("scales", "tie_in_code")
    if not any(entry.get(name) for entry in (meant, own) for name in names):
        return
    if _is_scaled(meant, part.config) is not _is_scaled(own, part.config):
        yield ReleaseReading("wrong-silently", "the scaling of the decoder's outputs")


def _is_scaled(entry: Entry, config: Mapping[str, Any]) -> bool | None:
    if entry.get("scales"):
        is_tied = config.get("tie_word_embeddings", True) is True
        return bool(config.get("scale_decoder_outputs", is_tied))
    if entry.get("tie_in_code"):
        return config.get("tie_word_embeddings", True) is True
    return False


# --- forward code and companions ----------------------------------------------------------------


def forward_changes(
    changes: tuple[ForwardChange, ...], release: str, writer: str, parts: list[NestedConfig]
) -> Iterator[ReleaseReading]:
    for change in changes:
        limit = numbers_of(change.before)
        if (numbers_of(release) < limit) is (numbers_of(writer) < limit):
            continue
        for part in parts:
            if part.model_type == change.model_type and _applies(change, part.config):
                yield ReleaseReading(
                    "unknown", f"the code of its class changed in {change.before}: {change.why}"
                )


def _applies(change: ForwardChange, config: Mapping[str, Any]) -> bool:
    return all(config.get(key) == value for key, value in change.when.items()) and not (
        change.unless and all(config.get(key) == value for key, value in change.unless.items())
    )


_KINDS_OF_COMPANIONS = ("image_processor_type", "feature_extractor_type", "processor_class")


def companions_read(
    records: Releases, release: str, subject: ReadCheckpoint
) -> Iterator[ReleaseReading]:
    facts = records.facts[release]
    is_old = numbers_of(release) < FIRST_FIVE
    if (settings := subject.tokenizer) is not None:
        name = settings.get("tokenizer_class")
        if isinstance(name, str) and not _has_class(name, facts.companions):
            yield ReleaseReading("refuses", f"it has no tokenizer class {quoted(name)}")
        if isinstance(settings.get("extra_special_tokens"), list) and is_old:
            yield ReleaseReading(
                "refuses", "it refuses a list as extra_special_tokens of the tokenizer"
            )
        is_new = "backend" in settings or "added_tokens_decoder" not in settings
        if isinstance(name, str) and name.startswith("Llama") and is_new is is_old:
            yield ReleaseReading(
                "wrong-silently", "LlamaTokenizer gives other ids in transformers 4 and 5"
            )
    if (settings := subject.processor) is not None:
        for key in _KINDS_OF_COMPANIONS:
            name = settings.get(key)
            if isinstance(name, str) and not _has_class(name, facts.companions):
                yield ReleaseReading("refuses", f"it has no class {quoted(name)}")


def _has_class(name: str, known: frozenset[str]) -> bool:
    return not known.isdisjoint({name, f"{name}Fast", name.removesuffix("Fast")})
