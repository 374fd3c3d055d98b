"""AutoRound, https://arxiv.org/abs/2309.05516, as Intel's auto-round stores it.

A linear of (out, in) in b bits (2 to 8), in groups of g inputs, is packed as in GPTQ or AWQ, as
`packing_format` declares:

    auto_round, auto_round:gptq, :auto_gptq, :gptqmodel
        X.qweight I32 (in * b/32, out)   X.qzeros I32 (ceil(in/g), out * b/32)
        X.scales  F16 (ceil(in/g), out)  X.g_idx  I32 (in,), only :gptqmodel
    auto_round:awq, :auto_awq
        X.qweight I32 (in, out * b/32)   X.qzeros I32 (in/g, out * b/32)   X.scales F16 (in/g, out)

Symmetric weights have qzeros too. auto_round and :gptqmodel store zero points, :gptq and
:auto_gptq store zero points less one. If activations have 8 bits or fewer, X.act_scales (1,) and
X.w_bf16_to_fp8_scale (1,) or (1, out) are stored too. Other packings (fp8, mxfp4, nvfp4, mx_int4,
mlx) are not read here. Sources: auto_round/export and auto_round_extension/torch of auto-round
0.16.1.

In the config `packing_format` names the packing of integers; up to 0.4 `backend` did, followed by a
kernel, as in auto_round:gptq:exllamav2. The linears below `block_name_to_quantize` (up to 0.4
`to_quant_block_names`, or `quant_block_list`) are packed, and the linears that `extra_config`
names. Its values replace bits and group_size; more than 8 bits mean plain. A key of `extra_config`
that is not the name of a module is a search expression; the first match counts. Sources:
auto_round/inference/convert_model.py of auto-round 0.16.1, and auto_round/export of 0.2, 0.3.1,
0.4.7 and 0.6.0.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import groupby

from msgspec.structs import replace

from auditor.bounded.patterns import names_containing
from auditor.layouts._qweight import (
    GEMM,
    GPTQ,
    QWEIGHT,
    WORDS,
    QweightSettings,
    any_qweight,
    packing_of_config,
    readings,
    title_with_forms,
)
from auditor.layouts._scheme import Scheme, followed
from auditor.layouts.declared import integer_setting, object_or_empty
from auditor.layouts.engine import LayoutTable, Packing
from auditor.layouts.packing import (
    FLOATS,
    Declared,
    Members,
    PackingLedger,
    Shape,
    Stored,
    WrittenTensor,
)
from auditor.messages import described, named, quoted

BITS = (4, 8, 2, 3, 5, 6, 7)  # the likeliest first: the order decides if shapes fit several
PLAIN = (16, 32)  # bits of a layer that stays plain

_GROUPS = range(-1, 2**31)
_PREFIXES = ("auto_round", "autoround")  # the start of a packing_format
_AWQ = frozenset({"awq", "auto_awq", "gemm"})
_FORMS = _AWQ | {"gptq", "auto_gptq", "gptqmodel", "auto"}
_KERNELS = frozenset({"exllama", "exllamav2", "triton", "tritonv2", "cuda"})
_BLOCKS = ("block_name_to_quantize", "to_quant_block_names", "quant_block_list")
# Lists from other writers, which the loader also reads; this package does not evaluate them.
_LISTS = ("dynamic", "modules_to_not_convert", "modules_in_block_to_quantize")
_KEYS = 2_000  # keys of extra_config that name no module; so many are read in 0.1 s
_RUNS = 8  # sets of such keys with equal settings; each set takes up to a second
_COMPARED = 100_000_000  # characters of names times blocks, in 0.1 s
_NUMBERED = re.compile(r"\w+\.[0-9].*")


# --- how integers are packed ------------------------------------------------------------------


def unread(declared: Declared) -> str | None:
    """Return a phrase with the declared packing if this layout cannot read it; None otherwise."""
    key, packing = _packing(declared)
    form = _form(packing) if isinstance(packing, str) else GPTQ
    kind = next(filter(_is_no_integer, _data_types(declared)), None)
    if form is not None and kind is None:
        return None
    unread_settings = [] if packing is None else [f"the {key} {_shown(packing)}"]
    unread_settings += [] if kind is None else [f"the data_type {_shown(kind)}"]
    return f"{named(declared.method)} with {' and '.join(unread_settings)}"


def _unstated(declared: Declared, ledger: PackingLedger) -> QweightSettings:
    """Return the settings that the config's packing implies: the form, without bits and group."""
    key, packing = _packing(declared)
    if packing is None:
        source = f"{declared.where} declares no packing_format, which means gptq"
        return QweightSettings(form=GPTQ, form_source=source)
    if not isinstance(packing, str):
        ledger.fault(f"{key} of {declared.where} is {described(packing)}; a string is needed")
        return QweightSettings()
    source = f"{key} of {declared.where} is {quoted(packing)}"
    return QweightSettings(form=_form(packing), form_source=source)


def _packing(declared: Declared) -> tuple[str, object]:
    """Return the config key that names the packing of integers, and its value."""
    key = "packing_format" if declared.settings.get("packing_format") is not None else "backend"
    return key, declared.settings.get(key)


def _form(packing: str) -> str | None:
    """Return the form, GPTQ or GEMM, of a packing's name; None for any other packing."""
    words = packing.replace("-", "_").split(":")
    inner = frozenset(words[1:] if words[0] in _PREFIXES else words)
    if not inner <= _FORMS | _KERNELS:
        return None
    return GPTQ if inner.isdisjoint(_AWQ) else GEMM


def _data_types(declared: Declared) -> Iterator[object]:
    """Yield the config's data type, and the data types of packed layers that have their own."""
    yield declared.settings.get("data_type")
    for own in object_or_empty(declared.settings.get("extra_config")).values():
        if object_or_empty(own).get("bits") not in PLAIN:
            yield object_or_empty(own).get("data_type")


def _is_no_integer(kind: object) -> bool:
    return kind is not None and not (isinstance(kind, str) and kind.startswith("int"))


def _shown(value: object) -> str:
    return quoted(value) if isinstance(value, str) else described(value)


# --- the settings of a module -----------------------------------------------------------------


def _settings(
    declared: Declared | None, stored: Stored, ledger: PackingLedger
) -> Callable[[str], QweightSettings]:
    if declared is None:
        return lambda _module: QweightSettings()
    return _AutoRoundSettings(declared, stored, ledger).of


def _scheme_of_names(
    declared: Declared,
    names: Collection[str],
    settings: Callable[[str], QweightSettings],
    *_: object,
) -> Scheme:
    """Return the scheme (the packed and the plain modules) that the config declares."""
    extra = object_or_empty(declared.settings.get("extra_config"))
    return Scheme(
        plain=frozenset(name for name in names if settings(name).bits in PLAIN),
        packs=lambda plain: [
            module for module in plain if module not in extra and settings(module).bits in BITS
        ],
        source=f"extra_config or block_name_to_quantize of {declared.where}",
        named=tuple(module for module in extra if settings(module).bits in BITS),
    )


class _AutoRoundSettings:
    """A lookup of each module's settings in the config."""

    def __init__(self, declared: Declared, stored: Stored, ledger: PackingLedger) -> None:
        self._own: dict[str, QweightSettings] = {}  # by module named in extra_config
        self._found: list[tuple[QweightSettings, frozenset[str]]] = []
        self._vague: frozenset[str] | None = frozenset()  # ends of names; None means all names
        self._unstated = _unstated(declared, ledger)
        self._default = _scheme(declared, self._unstated, ledger)
        unmatched: list[tuple[str, QweightSettings]] = []
        for key, scheme in _entries(declared, self._default, ledger):
            if key in stored.modules:
                self._own[key] = scheme
            else:
                unmatched.append((key, scheme))
        key, blocks = _blocks(declared)
        where = f"{key} of {declared.where}"
        self._outside = self._unstated._replace(bits=PLAIN[0], where=where)
        self._blocks = tuple({f".{_tail(block, last=True)}" for block in blocks if block})
        work = sum(map(len, stored.modules)) * len(self._blocks)
        too_much = work > _COMPARED or len(unmatched) > _KEYS
        if too_much or any(declared.settings.get(name) for name in _LISTS):
            self._vague = None
        else:
            self._search(unmatched, stored)

    def of(self, module: str) -> QweightSettings:
        if module in self._own:
            return self._own[module]
        own_scheme = next((scheme for scheme, names in self._found if module in names), None)
        if own_scheme is not None:
            return own_scheme
        if self._vague is None or _tail(module) in self._vague:
            return self._unstated
        inside = not self._blocks or any(block in f".{module}" for block in self._blocks)
        return self._default if inside else self._outside

    def _search(self, unmatched: list[tuple[str, QweightSettings]], stored: Stored) -> None:
        """Find the modules whose names contain a key; `unmatched` are keys that are not full names.

        Such a key may also be a module's name from before a renaming.
        """
        self._vague = frozenset(_tail(key) for key, _ in unmatched)
        for scheme, keys in groupby(unmatched, lambda pair: pair[1]):
            names = followed(names_containing, [key for key, _ in keys], stored.modules)
            if names is None or len(self._found) == _RUNS:
                self._vague = None
                return
            self._found.append((scheme, names))


def _scheme(declared: Declared, default: QweightSettings, ledger: PackingLedger) -> QweightSettings:
    bits = integer_setting(declared, "bits", (*BITS, *PLAIN), ledger, default=default.bits)
    group = integer_setting(declared, "group_size", _GROUPS, ledger, default=default.group)
    return default._replace(bits=bits, group=group, where=declared.where)


def _entries(
    declared: Declared, default: QweightSettings, ledger: PackingLedger
) -> Iterator[tuple[str, QweightSettings]]:
    """Yield each key of extra_config that has settings, and the settings."""
    extra, where = declared.settings.get("extra_config"), f"extra_config of {declared.where}"
    if extra is not None and not isinstance(extra, Mapping):
        ledger.fault(f"{where} is {described(extra)}; an object is needed")
    for key, own in object_or_empty(extra).items():
        if not isinstance(own, Mapping):
            ledger.fault(f"a layer in {where} is {described(own)}; an object is needed")
        elif own:
            layer = Declared(method=declared.method, settings=own, where=where)
            yield key, _scheme(layer, default, ledger)


def _blocks(declared: Declared) -> tuple[str, tuple[str, ...]]:
    """Return the config key that lists the packed blocks, and their names; () if none is listed."""
    for key in _BLOCKS:
        value = declared.settings.get(key)
        lists = value if isinstance(value, list) else [value]
        flat = [name for one in lists for name in (one if isinstance(one, list) else [one])]
        names = [part.strip() for name in flat if isinstance(name, str) for part in name.split(",")]
        if any(names):
            return key, tuple(names)
    return _BLOCKS[0], ()


def _tail(name: str, *, last: bool = False) -> str:
    """Return `layers.1.mlp` for `language_model.model.layers.1.mlp`, whose start is often renamed.

    With `last`, return the last segment of a name that has no number.
    """
    match = _NUMBERED.search(name)
    if match:
        return match.group()
    return name.rpartition(".")[2] if last else name


_COMPANIONS = {
    **QWEIGHT,
    "g_idx": "g_idx, the group of each input",
    "act_scales": "scale of the activations",
    "w_bf16_to_fp8_scale": "scale of the weight as fp8",
}


def _by_shapes(
    parts: Members, settings: QweightSettings, expected: Shape | None
) -> list[Packing] | str:
    if settings.bits in PLAIN:
        settings = settings._replace(bits=None)
    packings = readings(parts, settings, expected, forms=(GPTQ, GEMM), bits=BITS)
    if isinstance(packings, str):
        return packings
    scale = {"act_scales": WrittenTensor((1,), FLOATS, others=((),))}
    return [replace(one, tensors={**one.tensors, **scale}) for one in packings]


def _by_config(_parts: Members, scheme: QweightSettings, shape: Shape) -> Packing | None:
    bits = scheme.bits if scheme.bits in BITS else None
    form = GEMM if scheme.form == GEMM else GPTQ
    return packing_of_config(form, shape, bits, scheme.group)


LAYOUT = LayoutTable[QweightSettings](
    name="auto-round",
    methods=("auto-round", "intel/auto-round"),
    recognises=any_qweight((GPTQ, GEMM), BITS),
    packed="qweight",
    dtypes=WORDS,
    dtype="INT4",
    companions=_COMPANIONS,
    needed=lambda *_: ["scales", "qzeros"],
    settings=_settings,
    by_shapes=_by_shapes,
    by_config=_by_config,
    title=lambda _, packings: title_with_forms("auto-round", packings),
    scheme=_scheme_of_names,
    conv1d=True,
    unread=unread,
).layout()
