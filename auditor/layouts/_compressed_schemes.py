"""The quantization scheme of each module in a compressed-tensors config.

`config_groups` maps names to schemes; a scheme has `weights`, `input_activations` and `targets`.
A target is a module's name, `re:` and an expression for the start of the name, or a class. A
module that `ignore` matches by name or expression stays plain; else names are tried first, then
expressions, then classes. A module's class is unknown here: a target that may be a class matches
every module, after names and expressions. Sources: compressed_tensors.utils.match and
.quantization.lifecycle.apply, 0.20.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from auditor.bounded.patterns import names_beginning
from auditor.layouts._scales import CHANNEL, TENSOR, Grain, group_grain
from auditor.layouts._scheme import followed
from auditor.layouts.declared import (
    block_sides,
    integer_setting,
    object_or_empty,
    string_list,
)
from auditor.layouts.packing import Declared, PackingLedger
from auditor.messages import described

_EXPRESSION = "re:"
_BITS = range(1, 17)
_SIZES = range(-1, 1 << 24)  # group sizes; -1 means all inputs of an output


class CompressedScheme(NamedTuple):
    """The storage of a module's weight; a value is None if the config does not determine it."""

    bits: int | None = None
    kind: str | None = None  # int, float
    grain: Grain | None = None
    symmetric: bool | None = None
    ordered: bool = False  # act-order with an index: weight_g_idx
    static: bool = False  # whether activations have an input_scale
    scaled: bool = False  # whether activations have an input_global_scale
    form: str | None = None  # pack-quantized or another format
    is_plain: bool = False  # whether the config leaves the module plain

    @property
    def quantizes(self) -> bool:
        return self.bits is not None


UNSTATED = CompressedScheme()
_PLAIN = CompressedScheme(is_plain=True)


def flat_settings(declared: Declared | None) -> Declared | None:
    """Return the declared settings; older versions of transformers nest them one level deeper."""
    inner = declared.settings.get("quantization_config") if declared else None
    if declared is None or not isinstance(inner, Mapping) or "config_groups" in declared.settings:
        return declared
    return Declared(method=declared.method, settings=inner, where=declared.where)


def read_schemes(
    declared: Declared | None, modules: Iterable[str], ledger: PackingLedger
) -> Callable[[str], CompressedScheme]:
    """Return a function that maps a module to its scheme; report impossible settings.

    If a pattern cannot be read, it may match any module, and no scheme is known.
    """
    if declared is None:
        return lambda _module: UNSTATED
    modules = tuple(modules)
    default_form = _form(declared.settings.get("format"))
    schemes = [
        (targets, scheme if scheme.form else scheme._replace(form=default_form))
        for targets, scheme in _groups(declared, ledger)
    ]
    ignore = string_list(declared, "ignore")
    ignored, covered = _expressed(ignore, modules), [_expressed(one, modules) for one, _ in schemes]
    by_module: dict[str, CompressedScheme] = {}
    if ignored is None or None in covered:
        return lambda module: _PLAIN if module in ignore else UNSTATED
    for (_, scheme), names in zip(schemes, covered, strict=True):  # the first group counts
        for module in names or ():
            by_module.setdefault(module, scheme)
    for targets, scheme in reversed(schemes):
        by_module.update(dict.fromkeys(targets.intersection(modules), scheme))
    by_module.update(dict.fromkeys((*ignored, *ignore), _PLAIN))
    default = _default(schemes)
    return lambda module: by_module.get(module, default)


def _expressed(targets: frozenset[str], modules: Iterable[str]) -> frozenset[str] | None:
    expressions = sorted(target for target in targets if target.startswith(_EXPRESSION))
    return followed(
        names_beginning, [one.removeprefix(_EXPRESSION) for one in expressions], modules
    )


def _default(schemes: list[tuple[frozenset[str], CompressedScheme]]) -> CompressedScheme:
    """Return the scheme of targets that may be classes; plain if no target may be one.

    Return an empty scheme if the config does not determine one.
    """
    classes = [
        scheme
        for targets, scheme in schemes
        if any("." not in target and not target.startswith(_EXPRESSION) for target in targets)
    ]
    if len(classes) == 1:
        return classes[0]
    return UNSTATED if classes or not schemes else _PLAIN


# --- one group --------------------------------------------------------------------------------


def _groups(
    declared: Declared, ledger: PackingLedger
) -> Iterator[tuple[frozenset[str], CompressedScheme]]:
    groups = declared.settings.get("config_groups", {})
    if not isinstance(groups, Mapping):
        reason = f"config_groups of {declared.where} is {described(groups)}; an object is needed"
        ledger.fault(reason)
        return
    for name in sorted(groups):
        where = f"{described(name)} in config_groups of {declared.where}"
        group = Declared(
            method=declared.method, settings=object_or_empty(groups[name]), where=where
        )
        if isinstance(groups[name], list):  # a preset's name, with its targets
            yield frozenset(target for target in groups[name] if isinstance(target, str)), UNSTATED
        elif group.settings:
            yield string_list(group, "targets"), _scheme(group, ledger)
        else:
            ledger.fault(f"{where} is {described(groups[name])}; an object is needed")


def _scheme(group: Declared, ledger: PackingLedger) -> CompressedScheme:
    form = _form(group.settings.get("format"))
    weights = _inner(group, "weights", ledger)
    inputs = _inner(group, "input_activations", ledger)
    activations = inputs.settings if inputs else {}
    dynamic = activations.get("dynamic", False)
    scheme = CompressedScheme(
        static=inputs is not None and dynamic is False,
        scaled=activations.get("strategy") == "tensor_group" and dynamic is not True,
        form=form,
    )
    if weights is None:
        return scheme
    settings = weights.settings
    kind = settings.get("type", "int")
    return scheme._replace(
        bits=integer_setting(weights, "num_bits", _BITS, ledger) or 8,
        kind=kind.lower() if isinstance(kind, str) else None,
        grain=_grain(weights, ledger),
        symmetric=settings.get("symmetric", True) is not False,
        ordered=settings.get("actorder") in ("group", "dynamic"),
    )


def _grain(weights: Declared, ledger: PackingLedger) -> Grain | None:
    size = integer_setting(weights, "group_size", _SIZES, ledger)
    strategy = weights.settings.get("strategy")
    if strategy is None:
        strategy = "tensor" if size is None else "channel" if size == -1 else "group"
    match strategy:
        case "tensor":
            return TENSOR
        case "channel":
            return CHANNEL
        case "group" | "tensor_group" if size is not None and size > 0:
            return group_grain(size)
        case "block" if (block := _block(weights.settings.get("block_structure"))) is not None:
            return block
    sizes = f"group_size {described(weights.settings.get('group_size'))}"
    blocks = f"block_structure {described(weights.settings.get('block_structure'))}"
    ledger.fault(
        f"strategy of {weights.where} is {described(strategy)}, with {sizes} and {blocks}; "
        "tensor, channel, group with a size above 0, or block with two is needed"
    )
    return None


def _block(value: object) -> Grain | None:
    """Read a block size, `[128, 128]` or, in older versions, `"128x128"`; None for other values."""
    if isinstance(value, str):
        value = [int(part) if part.isdecimal() else 0 for part in value[:20].split("x")]
    block = block_sides(value)
    return None if block is None else Grain(*block)


def _inner(group: Declared, key: str, ledger: PackingLedger) -> Declared | None:
    value = group.settings.get(key)
    if value is None or isinstance(value, Mapping):
        where = f"{key} of {group.where}"
        return Declared(method=group.method, settings=value, where=where) if value else None
    ledger.fault(f"{key} of {group.where} is {described(value)}; an object is needed")
    return None


def _form(value: object) -> str | None:
    return value if isinstance(value, str) else None
