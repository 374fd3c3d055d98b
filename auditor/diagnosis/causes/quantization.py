"""quantization-settings: bits, groups, ignore lists or the method do not fit the stored tensors.

To do: Set the settings to the values that fit the files, or upload weights that were packed with
the declared settings.

quantization-not-applied: the config declares packed weights, and the files hold plain ones.

quantization-undeclared: the files hold packed weights, and the config declares none.

To do: Upload config and weights of one save: packed weights with the `quantization_config` that was
used to pack them, or plain weights without one.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from auditor.analytic.config_keys import value_at
from auditor.analytic.outline import shapes_in
from auditor.diagnosis.case import Case, Proposal
from auditor.layouts import settings_of_files
from auditor.layouts.declared import SUFFIX_OF, differing, list_of_unpacked, spelt_as
from auditor.layouts.packing import Stored
from auditor.messages import shown
from auditor.tensors import StoredTensor, is_float

_KEY = "quantization_config"
_PACKED = ("F8_", "F4", "F6_")  # start of dtypes of at most one byte, which need scales
_INTEGERS = ("I32", "I8", "U8")  # dtypes of packed weights whose layout is not the declared one
_SHOWN = {"bits", "group_size", "weight_block_size", "format", "bnb_4bit_quant_type"}
# Findings that wrong settings cause; if tensors are only missing, another cause applies.
_SYMPTOMS = frozenset({"unexpected", "mismatched", "bad-quantization"})
_PLACES = (_KEY, "quantization", f"text_config.{_KEY}", "compression_config")

_MOST_LISTED = 64
_MOST_ITEMS = 4  # items of a list in a sentence
_HEAD = "lm_head.weight"


def other_settings(case: Case) -> Iterator[Proposal]:
    """Yield proposals that correct one setting, then all settings, then lists of modules."""
    if _SYMPTOMS.isdisjoint(finding.kind for finding in case.alarms):
        return
    places = (one for one in _PLACES if isinstance(value_at(case.config, one), Mapping))
    place = next(places, None)
    if place is None:
        return
    declared: Mapping[str, Any] = value_at(case.config, place)
    held = [spelt_as(declared, one) for one in _settings_held(case)]
    method = str(declared.get("quant_method", "")).lower() or None
    for settings in held:
        same = settings.get("quant_method") == method or "quant_method" not in settings
        changes = differing(declared, settings) if same else {}
        alone = len(changes) > 1 and method != "bitsandbytes"  # its flags exclude each other
        for key, value in changes.items() if alone else ():
            yield _proposal(case, place, declared, {key: value})
        if changes:
            yield _proposal(case, place, declared, changes)
    yield from _lists(case, place, declared, method)
    for settings in held:
        if settings.get("quant_method") not in {None, method}:
            yield _other_method(case, place, declared, settings)


def _lists(
    case: Case, place: str, declared: Mapping[str, Any], method: str | None
) -> Iterator[Proposal]:
    """Yield proposals that add modules to the list of unpacked modules, or remove modules."""
    key = list_of_unpacked(declared, method or "")
    value = declared.get(key)
    if not key or not isinstance(value, list | None):
        return
    listed = [item for item in value or [] if isinstance(item, str)]
    if value is None and any(one.name == _HEAD for one in case.stored if is_float(one.dtype or "")):
        listed = [_HEAD.removesuffix(".weight")]  # unpacked by default if there is no list
    floats = {one.name for one in case.stored if is_float(one.dtype or "") and not _is_packed(one)}
    bad = (one.names for one in case.alarms if one.kind in {"bad-quantization", "unexpected"})
    names = (name for name in chain.from_iterable(bad) if name in floats)
    plain = [name.removesuffix(".weight") for name in names if name.endswith(".weight")]
    spelling = SUFFIX_OF.get(method or "")
    lasts = dict.fromkeys(name.rpartition(".")[2] for name in plain)
    suffixes = [(spelling or "{}").format(last) for last in lasts]
    longer = (plain, suffixes) if spelling else (suffixes, plain)
    alone = listed[:_MOST_LISTED] if len(listed) > 1 else ()
    lists = chain(
        ([*dict.fromkeys((*listed, *more))] for more in longer if 0 < len(more) <= _MOST_LISTED),
        ([one for one in listed if one != item] for item in alone),
        ([],) if listed and value is not None else (),
    )
    yield from (_proposal(case, place, declared, {key: new}) for new in lists)


def _proposal(
    case: Case, place: str, declared: Mapping[str, Any], changes: Mapping[str, Any]
) -> Proposal:
    twins = [one for one in _PLACES if one != place and value_at(case.config, one) == declared]
    paths = {f"{at}.{key}": value for key, value in changes.items() for at in (place, *twins)}
    fields = [(f"{place}.{key}", value_at(declared, key), value) for key, value in changes.items()]
    observed, wanted = zip(*(_texts(*field) for field in fields), strict=True)
    places = "".join(f" (and in {twin})" for twin in twins)
    return Proposal(
        cause="quantization-settings",
        change=case.setting(paths),
        fields=tuple(fields),
        summary="; ".join(observed),
        fix=f"{' and '.join(wanted)}{places} in config.json, or upload weights that were packed so",
        evidence=("so read, the packed tensors have the shapes that the config implies",),
    )


def _texts(path: str, was: Any, value: Any) -> tuple[str, str]:
    """Return texts of a setting's fault and its remedy; for a list, they name the difference."""
    before, after = (one if isinstance(one, list) else [] for one in (was, value))
    added = _items([one for one in after if one not in before])
    removed = _items([one for one in before if one not in after])
    if bool(added) == bool(removed):
        held = shown(value)
        return f"{path} is {shown(was)}, the files hold {held}", f"set {path} to {held}"
    if added:
        return f"{path} lacks {added}, which the files hold plain", f"add {added} to {path}"
    return f"{path} lists {removed}, which the files hold packed", f"remove {removed} from {path}"


def _other_method(
    case: Case, place: str, declared: Mapping[str, Any], settings: dict[str, Any]
) -> Proposal:
    was, held = declared.get("quant_method"), settings["quant_method"]
    return Proposal(
        cause="quantization-settings",
        change=case.setting({place: settings}),
        fields=((f"{place}.quant_method", was, held),),
        summary=f"{place}.quant_method is {was}, the files hold weights packed by {held}",
        fix=f"replace {place} in config.json by that of the {held} model, or upload the weights "
        f"that {was} packed",
        evidence=(f"the packed tensors have the shapes of {held}",),
    )


def _items(values: list[Any]) -> str:
    more = f" and {len(values) - _MOST_ITEMS} more" if len(values) > _MOST_ITEMS else ""
    return ", ".join(map(str, values[:_MOST_ITEMS])) + more


def declared_or_not(case: Case) -> Iterator[Proposal]:
    if _SYMPTOMS.isdisjoint(finding.kind for finding in case.alarms):
        return
    declared = case.config.get(_KEY)
    if declared is None:
        yield from (_undeclared(case, settings) for settings in _settings_held(case))
        return
    if any(map(_is_packed, case.stored)) or any(one.dtype in _INTEGERS for one in case.unmatched):
        return
    method = declared.get("quant_method") if isinstance(declared, Mapping) else None
    yield Proposal(
        cause="quantization-not-applied",
        change=case.setting({_KEY: None}),
        fields=((_KEY, method, None),),
        summary=f"the config declares packed weights{f' of {method}' if method else ''}, the files "
        "hold plain ones",
        fix=f"remove {_KEY} from config.json, or upload the packed weights",
        evidence=("read as plain weights, all names and shapes are expected",),
    )


def _is_packed(tensor: StoredTensor) -> bool:
    """Whether the tensor has a dtype that only packed weights have."""
    return tensor.dtype is not None and tensor.dtype.startswith(_PACKED)


def _settings_held(case: Case) -> Iterator[dict[str, Any]]:
    """Return the quantization settings that fit the stored packed tensors."""
    expected = case.own_tree
    implied = shapes_in(expected.tree, expected.prefix) if expected else lambda _: None
    return settings_of_files(Stored(case.stored.tensors), implied)


def _undeclared(case: Case, settings: dict[str, Any]) -> Proposal:
    method = settings.get("quant_method", "MLX")
    key = _KEY if "quant_method" in settings else "quantization"
    text = ", ".join(f"{name} {value}" for name, value in settings.items() if name in _SHOWN)
    return Proposal(
        cause="quantization-undeclared",
        change=case.setting({key: settings}),
        fields=((key, None, settings),),
        summary=f"the weights are packed by {method}{f' ({text})' if text else ''}, and the config "
        f"has no {key}",
        fix=f"add {key} to config.json",
        evidence=(f"the packed tensors have the shapes of {method}",),
    )
