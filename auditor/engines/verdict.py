"""The verdict of an engine on a checkpoint: every difference is looked up in what was recorded.

A change with which the engine's loader raised is a refusal. A change that was not tried makes the
verdict unknown, unless another one is refused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from msgspec import Struct

from auditor.engines.differences import Difference, Shapes, differences, kind_of
from auditor.engines.knowledge import (
    EngineEntry,
    Knowledge,
    SoundVariant,
    value_at,
    value_by_rule,
    without_sizes,
)
from auditor.messages import described, listed, quoted
from auditor.reconciler.fold import fold

_OF_SAVING = frozenset({"dtype", "torch_dtype", "transformers_version"})
_SHOWN = 3  # patterns of folded names in a reason
_ROPE = "rope_base"
_HEADS = ("num_attention_heads", "num_key_value_heads")
# The end of a name -> the ends of probes that tell what becomes of such a tensor.
_SIMILAR: Mapping[str, str | tuple[str, ...]] = {
    ".bias": ".bias",
    ".weight": (".unknown.weight", " unknown.weight"),
}


@dataclass(frozen=True)
class ExpectedShapes:
    """The tensors that a class expects as save_pretrained writes them."""

    needed: Shapes
    optional: Shapes  # stored by some versions of transformers

    @cached_property
    def kinds(self) -> tuple[frozenset[str], frozenset[str]]:
        """The kinds of the needed tensors, and of the optional ones."""
        return frozenset(map(kind_of, self.needed)), frozenset(map(kind_of, self.optional))

    @property
    def has_empty(self) -> bool:
        """Whether a tensor has no elements, as no tensor of a recorded save."""
        return any(0 in shape for shape in self.needed.values())


class ServedModel(Struct, frozen=True, kw_only=True):
    """A checkpoint as an engine finds it."""

    config: Mapping[str, Any]
    architectures: tuple[str, ...]
    model_type: str | None
    has_code: bool  # whether the repository brings its own classes
    stored: Shapes
    file_probes: tuple[str, ...] = ()  # what is unusual about the files, such as `files unindexed`
    unread: str = ""  # why the stored tensors are not all known
    packing_probe: str = ""  # `packed gptq`, `declared fp8`, ...; "" without quantization
    fits: bool = False  # whether the unpacked tensors are the expected ones
    expect: Callable[[str], ExpectedShapes | None]  # by class; None if it is not known


class EngineVerdict(Struct, frozen=True, kw_only=True):
    """The verdict of one engine on a checkpoint."""

    engine: str
    version: str
    date: str  # of the recording
    loads: bool | None  # None: unknown
    reasons: tuple[str, ...] = ()  # why not, or what it reads otherwise
    additions: Mapping[str, Any] = {}  # config keys that would help the engine, with their values


def unknown_verdict(known: Knowledge, reason: str) -> EngineVerdict:
    """Return the verdict of an engine that is not asked, with the reason."""
    return EngineVerdict(
        engine=known.engine,
        version=known.version,
        date=known.date,
        loads=None,
        reasons=(reason,),
    )


class _Judgement(NamedTuple):
    """The outcome of one change."""

    reason: str
    loads: bool | None = None  # None: unknown
    additions: Mapping[str, Any] = {}


def judge(known: Knowledge, subject: ServedModel) -> EngineVerdict:
    """Return the verdict of an engine on a checkpoint."""
    judged = tuple(_judgements(known, subject))
    refused = tuple(one for one in judged if one.loads is False)
    unknown = tuple(one for one in judged if one.loads is None)
    shown = refused or unknown or judged
    additions = {key: value for one in judged for key, value in one.additions.items()}
    return EngineVerdict(
        engine=known.engine,
        version=known.version,
        date=known.date,
        loads=False if refused else None if unknown else True,
        reasons=tuple(one.reason for one in shown if one.reason),
        additions=additions,
    )


def _judgements(known: Knowledge, subject: ServedModel) -> Iterator[_Judgement]:
    """Yield the outcome of each change; the checkpoint loads if all of them load."""
    name = _entry_name(known, subject)
    if name is None:
        key = known.keyed_by
        yield _Judgement(f"config.json has no {key}", loads=known.outcome(None, "class none"))
        return
    entry = known.entry(name)
    if entry is None or entry.not_tried:
        yield _without_entry(known, subject, name, entry)
        return
    if subject.model_type != entry.model_type:
        detail = f"{quoted(name)} was tried with model type {entry.model_type} only"
        yield _Judgement(detail)
        return
    for probe in subject.file_probes:
        yield _looked_up(known, entry, probe, _FILES.get(probe, probe))
    expected = None if subject.unread else subject.expect(entry.class_)
    fitting = _fitting(entry, expected, subject.config) if expected else ()
    has_all = expected is not None and expected.needed.keys() <= subject.stored.keys()
    for path, judged in _required_keys(entry, subject.config, fitting or entry.variants):
        yield judged if has_all or path not in entry.by_tensors else judged._replace(loads=None)
    yield from _uneven_heads(subject.config)
    yield from _readings(entry, subject.config)
    if subject.unread:
        yield _Judgement(subject.unread)
        return
    if subject.packing_probe:
        yield _packing(known, entry, subject)
    if expected is None:
        yield _Judgement(f"the tensors of {entry.class_} are not known here")
        return
    outcomes = {one.loads is True for one in fitting}
    if len(outcomes) != 1 or expected.has_empty:
        yield _Judgement("no save with these kinds of tensors was tried")
        return
    yield from _tensors(known, entry, subject, expected, fitting[0])


def _entry_name(known: Knowledge, subject: ServedModel) -> str | None:
    if known.keyed_by == "model_type":
        return subject.model_type
    return next(iter(subject.architectures), None)


def _without_entry(
    known: Knowledge, subject: ServedModel, name: str, entry: EngineEntry | None
) -> _Judgement:
    if entry is not None:
        return _Judgement(f"{quoted(name)} is registered, not tried: {entry.not_tried}")
    if known.aliases.get(name, name) in known.registered:
        return _Judgement(f"{quoted(name)} is registered, not tried")
    is_unknown = known.outcome(None, "class unknown") is False and name not in known.classes
    if known.closed or (is_unknown and not subject.has_code):
        return _Judgement(f"it does not know {quoted(name)}", loads=False)
    return _Judgement(f"it does not register {quoted(name)}, and it was not tried")


_FILES = {
    "files torch": "the weights are in torch files only",
    "files index absent": "the index names a shard that is absent",
    "files index wrong": "the index has a name that no file has",
    "files index fewer": "the files have a tensor that the index does not list",
    "files unindexed": "several weight files have no index",
    "files pattern": "no weight file has a name that it looks for",
}


def _looked_up(known: Knowledge, entry: EngineEntry, probe: str, detail: str) -> _Judgement:
    loads = known.outcome(entry, probe)
    if loads is None:
        return _Judgement(f"{detail}: not tried")
    why = entry.why.get(probe)
    return _Judgement(f"{detail} ({why})" if why and not loads else detail, loads=loads)


def _required_keys(
    entry: EngineEntry, config: Mapping[str, Any], variants: Sequence[SoundVariant]
) -> Iterator[tuple[str, _Judgement]]:
    for path in entry.requires:
        if value_at(config, path) is None:
            is_null = _is_null(config, path)
            spared = {_spares(one, path, is_null=is_null) for one in variants if one.loads is True}
            if spared - {False}:
                if spared != {True}:
                    yield path, _Judgement(f"config.json lacks {path}, which some saves need")
                continue
            value = _filled(entry, config, path)
            loads, why = _without(entry, config, path, value)
            what = f": write {value!r}, as the class takes it" if value is not None else ""
            added = {path: value} if value is not None and "." not in path else {}
            if not loads:
                yield path, _Judgement(f"{why}{what}", loads, added)
    for path in entry.unclear:
        if value_at(config, path) is None:
            detail = f"config.json lacks {path}, without which it was not tried"
            yield path, _Judgement(detail)


def _uneven_heads(config: Mapping[str, Any]) -> Iterator[_Judgement]:
    """Yield heads that cannot share keys and values evenly; no save with such heads was tried."""
    for level in ("", "text_config."):
        heads, shared = (value_at(config, level + key) for key in _HEADS)
        if type(heads) is int and type(shared) is int and (shared <= 0 or heads % shared):
            detail = f"{heads} attention heads on {shared} key-value heads: not tried"
            yield _Judgement(detail)


def _filled(entry: EngineEntry, config: Mapping[str, Any], path: str) -> Any:
    source = entry.fills.get(path)
    return value_by_rule(source, config) if isinstance(source, str) else source


def _spares(variant: SoundVariant, path: str, *, is_null: bool) -> bool | None:
    """Return whether such a save loads without a value of a key; None if null was not tried."""
    if not is_null:
        return path in variant.spares
    if variant.when.get(path, ...) is None:
        return True
    return None if path in variant.spares else False


def _is_null(config: Mapping[str, Any], path: str) -> bool:
    outer, _, key = path.rpartition(".")
    inside = value_at(config, outer) if outer else config
    return isinstance(inside, Mapping) and key in inside


def _without(
    entry: EngineEntry, config: Mapping[str, Any], path: str, value: Any
) -> tuple[bool | None, str]:
    """Return what becomes of a config without a key, and why; `value` is what the class takes."""
    if _is_null(config, path):
        return entry.outcome(f"null {path}"), f"config.json has null as {path}"
    lacks = f"config.json lacks {path}"
    default = entry.defaults.get(path)
    if default is None:
        return False, f"{lacks}, which it requires"
    loads = entry.outcome(_compared(value, default, path)) if type(value) is int else None
    return loads, f"{lacks}, for which it takes {default}"


def _compared(value: int, other: int, key: str) -> str:
    """Return the probe of a value that is less than another one, the same or more."""
    return f"{'less' if value < other else 'more' if value > other else 'same'} {key}"


def _readings(entry: EngineEntry, config: Mapping[str, Any]) -> Iterator[_Judgement]:
    """Yield what the engine reads otherwise than transformers; none of it is a refusal."""
    for key, reading in entry.reads.items():
        if key == _ROPE:
            yield from _rope_base(entry, config)
        elif reading.top == "ignored" and config.get(key) not in {None, reading.default}:
            value = described(config[key])
            yield _Judgement(f"it ignores {key}, which config.json sets to {value}", loads=True)
    for key in entry.ignores:
        if key not in entry.reads and config.get(key) is not None:
            yield _Judgement(f"it ignores {key} of config.json", loads=True)


def _rope_base(entry: EngineEntry, config: Mapping[str, Any]) -> Iterator[_Judgement]:
    reading = entry.reads[_ROPE]
    inner, top = value_at(config, "rope_parameters.rope_theta"), config.get("rope_theta")
    if inner is not None and top is not None:
        is_read = "read" in {reading.rope_parameters, reading.top}
        value, by = inner, "read" if is_read else reading.top
    elif inner is not None:
        value, by = inner, reading.rope_parameters
    else:
        value, by = top, reading.top
    if type(value) not in {int, float} or by != "ignored" or value == reading.default:
        return
    instead = "its default" if reading.default is None else f"{reading.default:g}, its default,"
    added = {"rope_theta": value} if top is None and reading.top == "read" else {}
    how = ": write rope_theta at the top level of config.json as well" if added else ""
    reason = f"it takes {instead} as the rope base, not {value:g}{how}"
    yield _Judgement(reason, loads=True, additions=added)


def _packing(known: Knowledge, entry: EngineEntry, subject: ServedModel) -> _Judgement:
    probe = subject.packing_probe
    verb, _, method = probe.partition(" ")
    packed = verb == "packed"
    detail = f"the weights are packed by {method}" if packed else f"{method} is declared only"
    if packed and not subject.fits:
        return _Judgement(f"{detail}, and they are not the expected ones")
    return _looked_up(known, entry, probe, detail)


def _tensors(
    known: Knowledge,
    entry: EngineEntry,
    subject: ServedModel,
    expected: ExpectedShapes,
    variant: SoundVariant,
) -> Iterator[_Judgement]:
    is_packed = subject.packing_probe.startswith("packed")  # the audit has compared them unpacked
    found = () if is_packed else _found(entry, subject, expected, variant)
    if variant.loads is not True:
        untried = sorted(_untried(variant, subject.config))
        if untried:
            yield _Judgement(f"no save with such a value of {listed(untried)} was tried")
            return
        allowed = {**expected.needed, **expected.optional}
        is_sound = expected.needed.keys() <= subject.stored.keys() <= allowed.keys()
        if not is_sound and not (variant.stays and _is_one_sided(found)):
            yield _Judgement(f"it refuses sound saves of {entry.class_}; this one was not tried")
            return
        yield _Judgement(f"it refuses every save of {entry.class_}: {variant.loads}", loads=False)
        return
    guarded = tuple(_guards(entry, subject.config))
    if guarded:  # what becomes of a difference beside them was not tried
        yield from (one._replace(loads=None) if found else one for one in guarded)
        return
    is_renamed = {one.probe for one in found} & _MISSING and any(
        one.probe == "extra" and known.outcome(entry, "extra", one.kind) is None for one in found
    )
    for difference in found:
        judged = _judged(known, entry, difference)
        if is_renamed and difference.probe in {*_MISSING, "extra"} and judged.loads is False:
            detail = f"{judged.reason}; the engine may know the one by the name of the other"
            judged = judged._replace(loads=None, reason=detail)
        yield judged


def _found(
    entry: EngineEntry, subject: ServedModel, expected: ExpectedShapes, variant: SoundVariant
) -> tuple[Difference, ...]:
    """Return the differences from the tensors that such a save has."""
    kinds = {entry.kinds[at] for at in variant.kinds}
    wanted = {
        name: shape
        for name, shape in {**expected.needed, **expected.optional}.items()
        if kind_of(name) in kinds and (name in expected.needed or name in subject.stored)
    }
    return tuple(differences(subject.stored, wanted, entry))


def _is_one_sided(found: Sequence[Difference]) -> bool:
    """Return whether tensors are only missing or only too many, so that none has another name."""
    probes = {one.probe for one in found}
    lacks = not probes.isdisjoint({*_MISSING, "layer missing"})
    return bool(probes) and "" not in probes and not (lacks and "extra" in probes)


def _guards(entry: EngineEntry, config: Mapping[str, Any]) -> Iterator[_Judgement]:
    """Yield each value that differs from the one that the engine derives from other keys."""
    for key, rule in entry.guards.items():
        value = value_at(config, key)
        if rule == "":
            yield _Judgement(f"how it takes {key} from other keys was not found")
            continue
        derived = rule if isinstance(rule, bool) else value_by_rule(rule, config)
        if value is None or value == derived:
            continue
        loads = None
        if isinstance(rule, bool):
            loads = entry.outcome(f"other {key}")
        elif type(value) is int and derived is not None:
            loads = entry.outcome(_compared(value, derived, key))
        taken = str(rule).lower() if isinstance(rule, bool) else f"{rule} = {derived}"
        stated = described(value)
        yield _Judgement(f"it takes {taken} as {key}, which config.json sets to {stated}", loads)


def _fitting(
    entry: EngineEntry, expected: ExpectedShapes, config: Mapping[str, Any]
) -> tuple[SoundVariant, ...]:
    """Return the variants with the kinds that the config implies, and with its flags."""
    needed, optional = expected.kinds
    positions = {kind: at for at, kind in enumerate(entry.kinds)}
    if not needed <= positions.keys():
        return ()
    least = {positions[kind] for kind in needed}
    most = least.union(positions[kind] for kind in optional if kind in positions)
    return tuple(
        one
        for one in entry.variants
        if least <= {*one.kinds} <= most
        and all(
            value_at(config, key) is flag for key, flag in one.when.items() if type(flag) is bool
        )
    )


def _untried(variant: SoundVariant, config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the config keys that a refused save lacked, or had with another value of a flag."""
    for key, value in config.items() if variant.tried else ():
        if key not in _OF_SAVING and without_sizes(value) != variant.tried.get(key, ...):
            yield key


def _judged(known: Knowledge, entry: EngineEntry, difference: Difference) -> _Judgement:
    probe, kind = difference.probe, difference.kind
    loads = known.outcome(entry, probe, kind) if probe else None
    if loads is None and probe == "some":
        loads = known.outcome(entry, "missing", kind)
    if loads is None and probe == "layer missing":
        loads = _lost_layer(entry, difference.names)
    if loads is None and probe == "extra":
        loads = _unknown_tensor(entry, kind)
    return _Judgement(_sentence(entry, difference, loads=loads), loads=loads)


def _lost_layer(entry: EngineEntry, names: Iterable[str]) -> bool | None:
    """Return whether the engine loads a save without these tensors of a layer.

    A loader that merges experts may raise for some of them and not for all, so they do not count.
    """
    outcomes = {kind: entry.outcome("missing", kind) for kind in map(kind_of, names)}
    if any(loads is False for kind, loads in outcomes.items() if ".experts." not in kind):
        return False
    return True if set(outcomes.values()) == {True} else None


def _unknown_tensor(entry: EngineEntry, kind: str) -> bool | None:
    """Return whether the engine loads a save with a tensor of which nothing was recorded.

    A bias is judged by the biases that were tried. An engine may have a rule for a name, so one
    outcome that differs leaves the answer open.
    """
    ends = next((ends for end, ends in _SIMILAR.items() if kind.endswith(end)), None)
    if ends is None:
        return None
    outcomes = {entry.outcome(one) for one in entry.tried("extra ") if one.endswith(ends)}
    return outcomes.pop() if len(outcomes) == 1 else None


_MISSING = frozenset({"missing", "some"})
_SHAPES = {
    "rows+": "more rows than the config says",
    "rows-": "fewer rows than the config says",
    "columns+": "more columns than the config says",
    "columns-": "fewer columns than the config says",
}


def _sentence(entry: EngineEntry, difference: Difference, *, loads: bool | None) -> str:
    """Return what differs, and what the engine makes of it."""
    probe = difference.probe
    patterns = fold(difference.names)
    more = len(patterns) - _SHOWN
    names = ", ".join(patterns[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
    verb, _, prefix = probe.partition(" ")
    if probe in _MISSING:
        what = f"{names}: not stored"
    elif probe in _SHAPES:
        what = f"{names}: {_SHAPES[probe]}"
    elif probe == "layer missing":
        what = f"{names}: not stored, a whole layer"
    elif probe == "layer":
        what = f"{names}: beyond the layers that the config says"
    elif verb == "strip":
        what = f"the names lack the prefix {prefix}"
    elif verb == "add":
        what = f"all names begin with {prefix}"
    elif verb in {"fused", "split"}:
        what = f"{names}: stored {'as one' if verb == 'fused' else 'one by one'}"
    elif probe == "extra":
        what = f"{names}: no parameter of {entry.class_}"
    else:
        what = f"{names}: another shape or number than the config says"
    endings = {True: "; it does not mind", False: "", None: "; not tried"}
    return what + endings[loads]
