"""The modules that a quantization config packs, and the stored modules that contradict it.

The config decides whether loading builds a packed module or a plain one. Each layout reads the
config in the syntax of its loaders and returns one `Scheme`, which only `report_contradictions`
reads. If versions of a loader interpret a list of modules in different ways, `unlisted` finds the
modules that no interpretation covers.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from auditor.bounded.patterns import PatternNotFollowedError, glob_expression, names_matching
from auditor.layouts.declared import string_list
from auditor.layouts.packing import FLOATS, NOT_LISTED, NOT_PLAIN, Declared, PackingLedger, Stored
from auditor.tensors import StoredTensor

_FLOATS = frozenset({None, "F32", "F16", "BF16"})  # None if only an index names the tensor
_NUMBER = re.compile(r"(?<![^.])[0-9]+(?![^.])")  # a layer's or expert's: a full segment
# The linears of a decoder layer: a writer that packs any of them packs all.
_PROJECTIONS = frozenset(f"{one}_proj" for one in ("q", "k", "v", "o", "gate", "up", "down"))
_ROUTERS = frozenset({"gate", "router"})
_NUMBERED = re.compile(r"\b\w+\.[0-9]")
_DIGITS = tuple("0123456789")
_WEIGHT = ".weight"
_HEAD = "lm_head"
_MATRIX = 2  # axes
_LISTED = 20_000  # modules to skip, in 30 ms; real lists have some hundreds
_COMPARED = 100_000_000  # characters of names times modules to skip, in 0.1 s


class Scheme(NamedTuple):
    """The modules that a config packs or leaves plain; loader versions may differ about a list."""

    plain: Collection[str]  # modules that loading leaves plain
    packs: Callable[[Collection[str]], Collection[str]]  # modules that all versions pack
    source: str  # "modules_to_not_convert of quantization_config", for messages
    # Whether a writer packs every layer: a completely plain layer is a contradiction, too.
    whole_layers: bool = False
    named: Collection[str] = ()  # modules that the config names as packed
    plain_source: str = ""  # the source of `plain`, if it is a different one
    # Whether the config packs each linear outside a list: a projection of a layer with any packed
    # module is a contradiction, too.
    every_linear: bool = False
    spares_routers: bool = False  # whether no loader of the format packs routers of experts


def skip_list_scheme(  # noqa: PLR0913 - the declaration, and how loaders read it
    key: str,
    declared: Declared,
    names: Collection[str],
    *_: object,
    packs_others: bool = True,
    whole_layers: bool = False,
    has_defaults: bool = True,
) -> Scheme:
    """Return the scheme that a skip list (modules that transformers leaves plain) implies.

    If `packs_others`, loading cannot read plain weights in a module outside the list. If
    `has_defaults`, loading leaves the output layer plain even if a list does not name it; without a
    list, loading always leaves it plain.
    """
    listed = string_list(declared, key)
    is_list = isinstance(declared.settings.get(key), list)
    keep = unlisted(listed)
    return Scheme(
        plain=(names_in_skip_lists(listed, names) or ()) if listed else (),
        packs=keep if packs_others else lambda _names: (),
        source=f"{key} of {declared.where}",
        whole_layers=whole_layers,
        named=keep((_HEAD,)) if packs_others and is_list and not has_defaults else (),
        every_linear=packs_others,
    )


def report_contradictions(  # noqa: PLR0913 - the stored tensors, the declaration, two words for messages
    stored: Stored,
    packed: Mapping[str, StoredTensor],
    scheme: Scheme | None,
    ledger: PackingLedger,
    *,
    loads: str,
    by_name: bool = True,
) -> None:
    """Report packed modules that the config leaves plain, and plain ones that it packs.

    `packed` maps the names of packed modules to their packed tensors. A plain module is reported if
    similar modules are packed, or if the config names it. `loads` describes what loading looks for
    in a plain module; `by_name` tells whether tensors without a header count.
    """
    if scheme is None:
        return
    if scheme.plain:
        wrong = [weight for module, weight in packed.items() if module in scheme.plain]
        if wrong:
            reason = f"{NOT_PLAIN}{scheme.plain_source or scheme.source}"
            reason = f"{reason}: loading expects floats; leave it out when you quantize"
            ledger.fault(reason, *wrong)
    if scheme.spares_routers and (routers := list(_packed_routers(stored, packed))):
        reason = "is a packed router, which loaders keep plain: they drop its scale"
        ledger.fault(f"{reason}; leave it out when you quantize", *routers)
    plain = plain_among_packed(
        stored, packed, whole_layers=scheme.whole_layers, every_linear=scheme.every_linear
    )
    odd = [plain[module] for module in scheme.packs(plain) if module not in scheme.plain]
    for module in scheme.named:
        weight = stored.members(module).get("weight")
        if weight is not None and module not in packed and weight not in odd:
            odd.append(weight)
    if odd := [one for one in odd if by_name or one.dtype in FLOATS]:
        reason = f"{NOT_LISTED}{scheme.source}: loading looks for {loads}"
        ledger.fault(reason, *odd)


def _packed_routers(stored: Stored, packed: Mapping[str, StoredTensor]) -> Iterator[StoredTensor]:
    """Yield the packed weights of modules `gate` or `router` that have experts beside them."""
    routers = [one for one in packed if one.rpartition(".")[2] in _ROUTERS]
    experts = [one for one in stored.modules if ".experts" in one] if routers else []
    above = {one.partition(".experts")[0] for one in experts}
    yield from (packed[one] for one in routers if one.rpartition(".")[0] in above)


# --- plain modules among similar packed ones --------------------------------------------------


def plain_among_packed(
    stored: Stored,
    packed: Collection[str],
    *,
    whole_layers: bool = False,
    every_linear: bool = False,
) -> Mapping[str, StoredTensor]:
    """Map each plain module that is similar to a packed module to its weight matrix.

    Modules are similar if their names differ only in numbers, because one class made them, or if
    they are projections of one attention or feed-forward block. Layers after the last layer with a
    packed module are left out, because some tools copy a drafting layer there that loading ignores;
    `whole_layers` includes them, for writers that store only what they have loaded. With
    `every_linear` all projections of a layer with a packed module are similar to it.
    """
    plain = {
        tensor.name.removesuffix(_WEIGHT): tensor
        for tensor in stored.tensors
        if tensor[1] in _FLOATS and tensor[0].endswith(_WEIGHT) and _is_matrix(tensor.shape)
    }
    lasts = {module.rpartition(".")[2] for module in plain}
    if not lasts.isdisjoint(_PROJECTIONS):
        lasts |= _PROJECTIONS
    ends = (*lasts, *(_DIGITS if any(map(str.isdecimal, lasts)) else ()))
    # Searching for numbers is slow; of 45,000 names only a few reach this line.
    like = frozenset(module for module in packed if module.endswith(ends))
    alike = {_NUMBER.sub("N", module) for module in like}
    around = {module.rpartition(".")[0] for module in like if _is_projection(module)}
    similar = {
        module: weight
        for module, weight in plain.items()
        if module not in like
        and (
            _NUMBER.sub("N", module) in alike
            or (_is_projection(module) and module.rpartition(".")[0] in around)
            or (every_linear and _is_projection(module))
        )
    }
    if not similar or whole_layers:
        return similar
    last_packed: dict[str, tuple[int, str]] = {}  # of each list of layers
    for layer in set(map(_layer, packed)):
        layers, place = _place(layer)
        last_packed[layers] = max(place, last_packed.get(layers, place))
    return {
        module: weight
        for module, weight in similar.items()
        for layers, place in [_place(_layer(module))]
        if layers in last_packed and place <= last_packed[layers]
    }


def _place(layer: str) -> tuple[str, tuple[int, str]]:
    """Return `("model.layers", (2, "13"))` for `model.layers.13`; longer numbers sort later."""
    layers, _, number = layer.rpartition(".")
    return layers, (len(number), number)


def _is_projection(module: str) -> bool:
    return module.rpartition(".")[2] in _PROJECTIONS


def _is_matrix(shape: tuple[int, ...] | None) -> bool:
    return shape is None or len(shape) == _MATRIX


def _layer(module: str) -> str:
    """Return `model.layers.3` for `model.layers.3.mlp.experts.5`; "" if the name has no number."""
    match = _NUMBER.search(module)
    return module[: match.end()] if match else ""


def unlisted(listed: frozenset[str]) -> Callable[[Collection[str]], list[str]]:
    """Return a function that selects the modules which no entry of a skip list can match.

    An entry can match a module if the module's name contains the entry, or contains the part
    of the entry that begins at its first number. If comparing takes too long, select no module.
    """

    def keep(names: Collection[str]) -> list[str]:
        if len(listed) > _LISTED or sum(map(len, names)) * len(listed) > _COMPARED:
            return []
        tails = tuple({_tail(entry) for entry in listed})
        return [name for name in names if not any(tail in name + _WEIGHT for tail in tails)]

    return keep


def _tail(entry: str) -> str:
    """Return `layers.1.mlp` for `language_model.model.layers.1.mlp`, whose start is often renamed.

    A pattern that is not a plain name may match any module: its tail is "", which is in every name.
    """
    if not re.fullmatch(r"[\w.]+", entry):
        return ""
    numbered = _NUMBERED.search(entry)
    return entry[numbered.start() :] if numbered else entry


# --- patterns of module names --------------------------------------------------------------------


_PLAIN = re.compile(r"[\w.-]*[\w-]")  # a plain name: its dots match only dots
_DEEP = 100  # levels of modules that are compared; each takes time by the name's length
_BOUNDARY = r"(?:(?<=\.)|(?=\.|$))"


def followed(
    match: Callable[[Iterable[str], Iterable[str]], frozenset[str]],
    expressions: Iterable[str],
    names: Iterable[str],
) -> frozenset[str] | None:
    """Return the names that `match` selects; None if an expression is too complex to evaluate."""
    try:
        return match(expressions, names)
    except PatternNotFollowedError:
        return None


def names_in_skip_lists(keys: Iterable[str], names: Iterable[str]) -> frozenset[str] | None:
    """Return the names that transformers' skip lists (modules_to_not_convert) cover.

    A key is an expression that matches a name up to a dot or the name's end, or is literally the
    end of the name. Return None if this cannot be decided.
    """
    names, keys = tuple(names), frozenset(keys)
    plain = frozenset(filter(_PLAIN.fullmatch, keys))
    lengths = sorted(set(map(len, plain)))
    literal = {name for name in names if at_or_below(name, plain) or _ends(name, plain, lengths)}
    unmatched_keys = sorted(keys - plain)
    starts = [rf"(?:{key}){_BOUNDARY}[\s\S]*" for key in unmatched_keys]
    ends = [rf"[\s\S]*{re.escape(key)}" for key in unmatched_keys]
    more = followed(names_matching, [*starts, *ends], names)
    return None if more is None else more | literal


def names_matching_globs(
    patterns: Iterable[str], names: Iterable[str], *, below: bool = False
) -> frozenset[str] | None:
    """Return the names that globs such as `model.layers.0*` match; None if they are too complex.

    `below` adds the names below a match: `lm_head.x` for `lm_head`.
    """
    names, patterns = tuple(names), frozenset(patterns)
    plain = frozenset(one for one in patterns if "*" not in one and "?" not in one)
    literal = {name for name in names if name in plain or (below and at_or_below(name, plain))}
    ends = ("", ".*") if below else ("",)
    globs = [glob_expression(one + end) for one in sorted(patterns - plain) for end in ends]
    more = followed(names_matching, globs, names)
    return None if more is None else more | literal


def at_or_below(name: str, modules: frozenset[str]) -> bool:
    """Return whether the name or a module above it is literally among the modules.

    Loaders match skip lists in further ways, which differ by version; all versions match these
    names.
    """
    if name.count(".") > _DEEP:
        name = ".".join(name.split(".", _DEEP)[:_DEEP])
    while name:
        if name in modules:
            return True
        name = name.rpartition(".")[0]
    return False


def _ends(name: str, plain: frozenset[str], lengths: list[int]) -> bool:
    """Return whether the name ends with a key of `plain`; `lengths` are the keys' lengths."""
    return any(name[-length:] in plain for length in lengths if length <= len(name))
