"""The verdict of an engine on a checkpoint: every difference is looked up in what was recorded.

A change with which the engine's loader raised is a refusal. A change that was not tried makes the
verdict unknown, unless another one is refused.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from msgspec import Struct

from auditor.analytic.expectation import ExpectedTensor, Listed, Role
from auditor.engines.config_keys import (
    Judgement,
    absent_keys,
    guards,
    readings,
    required_keys,
    uneven_heads,
)
from auditor.engines.differences import Difference, Shapes, differences, kind_of
from auditor.engines.knowledge import (
    EngineEntry,
    Knowledge,
    SoundVariant,
    value_at,
    without_sizes,
)
from auditor.engines.packed import (
    NOT_EXPECTED,
    UNCHECKED,
    UNDECLARED,
    half_packed,
    outcome_of_faults,
)
from auditor.engines.results import EngineVerdict
from auditor.engines.schemes import DeclaredSchemes, bits_of, declared_schemes, scheme_text
from auditor.messages import listed, quoted
from auditor.names.folding import first, fold

_OF_SAVING = frozenset({"dtype", "torch_dtype", "transformers_version"})
_SHOWN = 3  # patterns of folded names in a reason
# The end of a name -> the ends of probes that tell what becomes of such a tensor.
_SIMILAR: Mapping[str, str | tuple[str, ...]] = {
    ".bias": ".bias",
    ".weight": (".unknown.weight", " unknown.weight"),
}


@dataclass(frozen=True)
class ExpectedShapes:
    """The tensors that a class expects as save_pretrained writes them."""

    listed: Listed

    @cached_property
    def needed(self) -> Shapes:
        """The shapes of the needed tensors, by name."""
        others = {one.name: one.shape for one in self.listed.others if _is_needed(one)}
        return {**self.listed.shapes, **others}

    @cached_property
    def optional(self) -> Shapes:
        """The shapes of the tensors that some versions of transformers store, by name."""
        return {one.name: one.shape for one in self.listed.others if one.role.optional}

    @cached_property
    def kinds(self) -> tuple[frozenset[str], frozenset[str]]:
        """The kinds of the needed tensors, and of the optional ones."""
        return frozenset(map(kind_of, self._examples)), frozenset(map(kind_of, self.optional))

    @property
    def has_empty(self) -> bool:
        """Whether a needed tensor has no elements, as no tensor of a recorded save."""
        return any(0 in shape for shape in self._examples.values())

    @property
    def vectors(self) -> frozenset[str]:
        """The names of needed tensors with one dimension, which nothing packs."""
        return frozenset(name for name, shape in self._examples.items() if len(shape) == 1)

    @cached_property
    def _examples(self) -> Shapes:
        """The needed tensors; equal layers are represented by the first of them."""
        outline = self.listed.outline
        if outline is None:
            return self.needed
        return {first(one.name): one.shape for one in outline.tensors if _is_needed(one)}


def _is_needed(tensor: ExpectedTensor) -> bool:
    return tensor.role is not Role.TIED and not tensor.role.optional


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
    method: str = ""  # `gptq`, `fp8`, ...
    settings: Mapping[str, Any] = {}  # what config.json declares of the quantization
    floats: frozenset[str] = frozenset()  # stored tensors of 16 or 32 bits
    packing_faults: frozenset[str] = frozenset()  # words of `packed.py`
    fits: bool = False  # whether the unpacked tensors are the expected ones
    expect: Callable[[str], ExpectedShapes | None]  # by class; None if it is not known


def unknown_verdict(known: Knowledge, reason: str) -> EngineVerdict:
    """Return the verdict of an engine that is not asked, with the reason."""
    return EngineVerdict(
        engine=known.engine,
        version=known.version,
        date=known.date,
        loads=None,
        reasons=(reason,),
    )


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
        scheme=scheme_text(_schemes(known, subject)) if subject.method else None,
    )


def _schemes(known: Knowledge, subject: ServedModel) -> tuple[DeclaredSchemes, ...]:
    """Return what was recorded of the declared quantization; () if it was not tried."""
    if subject.method not in known.scheme_keys:
        return ()
    keys = known.scheme_keys
    return declared_schemes(
        known.schemes, keys, subject.method, subject.settings, subject.model_type
    )


def _judgements(known: Knowledge, subject: ServedModel) -> Iterator[Judgement]:
    """Yield the outcome of each change; the checkpoint loads if all of them load."""
    by_architecture = known.keyed_by == "architectures"
    name = next(iter(subject.architectures), None) if by_architecture else subject.model_type
    if name is None:
        key = known.keyed_by
        yield Judgement(f"config.json has no {key}", loads=known.outcome(None, "class none"))
        return
    entry = known.entry(name)
    if entry is None or entry.not_tried:
        yield _without_entry(known, subject, name, entry)
        return
    if subject.model_type != entry.model_type:
        detail = f"{quoted(name)} was tried with model type {entry.model_type} only"
        yield Judgement(detail)
        return
    for probe in subject.file_probes:
        yield _looked_up(known, entry, probe, _FILES.get(probe, probe))
    expected = None if subject.unread else subject.expect(entry.class_)
    fitting = _fitting(entry, expected, subject.config) if expected else ()
    for path, judged in required_keys(entry, subject.config, fitting or entry.variants):
        has_all = path not in entry.by_tensors or (
            expected is not None and expected.needed.keys() <= subject.stored.keys()
        )
        yield judged if has_all else judged._replace(loads=None)
    yield from uneven_heads(subject.config)
    yield from absent_keys(entry, subject.config)
    yield from readings(entry, subject.config, expected.kinds[0] if expected else ())
    if subject.unread:
        yield Judgement(subject.unread)
        return
    if subject.packing_probe or _is_undeclared(known, subject):
        yield _packing(known, entry, subject, expected)
    if expected is None:
        yield Judgement(f"the tensors of {entry.class_} are not known here")
        return
    outcomes = {one.loads is True for one in fitting}
    if len(outcomes) != 1 or expected.has_empty:
        yield Judgement("no save with these kinds of tensors was tried")
        return
    yield from _tensors(known, entry, subject, expected, fitting[0])


def _without_entry(
    known: Knowledge, subject: ServedModel, name: str, entry: EngineEntry | None
) -> Judgement:
    if entry is not None:
        return Judgement(f"{quoted(name)} is registered, not tried: {entry.not_tried}")
    if known.aliases.get(name, name) in known.registered:
        return Judgement(f"{quoted(name)} is registered, not tried")
    is_unknown = known.outcome(None, "class unknown") is False and name not in known.classes
    if known.closed or (is_unknown and not subject.has_code):
        return Judgement(f"it does not know {quoted(name)}", loads=False)
    return Judgement(f"it does not register {quoted(name)}, and it was not tried")


_FILES = {
    "files torch": "the weights are in torch files only",
    "files index absent": "the index names a shard that is absent",
    "files index wrong": "the index has a name that no file has",
    "files index fewer": "the files have a tensor that the index does not list",
    "files unindexed": "several weight files have no index",
    "files pattern": "no weight file has a name that it looks for",
}


def _looked_up(known: Knowledge, entry: EngineEntry, probe: str, detail: str) -> Judgement:
    loads = known.outcome(entry, probe)
    if loads is None:
        return Judgement(f"{detail}: not tried")
    why = entry.why.get(probe)
    return Judgement(f"{detail} ({why})" if why and not loads else detail, loads=loads)


def _packing(
    known: Knowledge, entry: EngineEntry, subject: ServedModel, expected: ExpectedShapes | None
) -> Judgement:
    probe = subject.packing_probe
    verb, _, method = probe.partition(" ")
    packed = verb == "packed"
    detail = f"the weights are packed by {method}" if packed else f"{method} is declared only"
    if packed or not probe:
        loads, why = _of_files(known, subject, expected)
        detail = f"{detail}; {why}" if why and packed else why or detail
        if not loads:
            return Judgement(detail, loads)
    judged = _looked_up(known, entry, probe, detail)
    if not judged.loads:
        return judged
    if subject.method in known.scheme_keys:
        return _as_declared(known, subject, judged)
    bits = bits_of(subject.settings)
    if bits == known.bits.get(method, bits):
        return judged
    number = " and ".join(map(str, sorted(bits))) or "other"
    return Judgement(f"{detail}, and no save with {number} bits was tried")


def _is_undeclared(known: Knowledge, subject: ServedModel) -> bool:
    return known.engine in UNCHECKED and UNDECLARED in subject.packing_faults


def _of_files(
    known: Knowledge, subject: ServedModel, expected: ExpectedShapes | None
) -> tuple[bool | None, str]:
    """Return whether an engine takes packed tensors as they are, and a clause on their faults."""
    has_names = expected is not None and expected.vectors <= subject.stored.keys()
    if known.engine not in UNCHECKED or expected is None or not has_names:
        return (
            (True, "") if subject.fits and has_names else (None, "they are not the expected ones")
        )
    half = half_packed(subject.architectures[0], subject.stored, subject.floats)
    if half is not None and subject.method:
        layer, is_joined = half
        why = f"a part of {quoted(layer)} is plain, and it joins the parts"
        return (False if is_joined else None), why
    if not subject.packing_faults:
        return (True, "") if subject.fits else (None, NOT_EXPECTED)
    is_dense = not any("expert" in one for one in expected.kinds[0])
    faults, method = subject.packing_faults, subject.method
    return outcome_of_faults(faults, method, subject.stored, is_dense=is_dense)


def _as_declared(known: Knowledge, subject: ServedModel, judged: Judgement) -> Judgement:
    """Return the judgement of a tried packing for the settings that this checkpoint declares."""
    found = _schemes(known, subject)
    raising = [row.raises for row in found if row.loads is False]
    if raising:
        return Judgement(f"{judged.reason} ({raising[0]})", loads=False)
    if not found:
        return Judgement(f"{judged.reason}, and no save with such a declaration was tried")
    if any(row.loads is None for row in found):
        return Judgement(f"{judged.reason}, and the machine decides whether it takes it")
    return judged


def _tensors(
    known: Knowledge,
    entry: EngineEntry,
    subject: ServedModel,
    expected: ExpectedShapes,
    variant: SoundVariant,
) -> Iterator[Judgement]:
    is_packed = subject.packing_probe.startswith("packed")  # the audit has compared them unpacked
    found = () if is_packed else _found(entry, subject, expected, variant)
    if variant.loads is not True:
        # The config keys that the refused save lacked, or had with another value of a flag.
        untried = sorted(
            key
            for key, value in (subject.config.items() if variant.tried else ())
            if key not in _OF_SAVING and without_sizes(value) != variant.tried.get(key, ...)
        )
        if untried:
            yield Judgement(f"no save with such a value of {listed(untried)} was tried")
            return
        allowed = {**expected.needed, **expected.optional}
        is_sound = expected.needed.keys() <= subject.stored.keys() <= allowed.keys()
        ids = frozenset().union(*(entry.ids(one.probe, one.kind) for one in found))
        stays = variant.stays and ids.isdisjoint(variant.mends) and _is_single(found)
        if not is_sound and not stays:
            yield Judgement(f"it refuses sound saves of {entry.class_}; this one was not tried")
            return
        yield Judgement(f"it refuses every save of {entry.class_}: {variant.loads}", loads=False)
        return
    guarded = tuple(guards(entry, subject.config))
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
    optional = {
        name: shape
        for name, shape in expected.optional.items()
        if name in subject.stored and kind_of(name) in kinds
    }
    return tuple(differences(subject.stored, {**expected.needed, **optional}, entry))


def _is_single(found: Sequence[Difference]) -> bool:
    """Return whether the tensors of at most one kind are missing or too many.

    Two such changes may mend a save together, and one tensor may be another one under its name.
    """
    probes = [one.probe for one in found]
    changed = [probe for probe in probes if probe in {*_MISSING, "extra", "layer missing"}]
    return bool(probes) and "" not in probes and len(changed) <= 1


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


def _judged(known: Knowledge, entry: EngineEntry, difference: Difference) -> Judgement:
    probe, kind = difference.probe, difference.kind
    loads = known.outcome(entry, probe, kind) if probe else None
    if loads is None and probe == "some":
        loads = known.outcome(entry, "missing", kind)
    if loads is None and probe == "layer missing":
        loads = _lost_layer(entry, difference.names)
    if loads is None and probe == "extra":
        loads = _unknown_tensor(entry, kind)
    return Judgement(_sentence(entry, difference, loads=loads), loads=loads)


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
