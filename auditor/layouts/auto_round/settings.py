"""The settings of AutoRound's config: the packing of integers, and the settings of each module.

`packing_format` names the packing; up to 0.4 `backend` did, followed by a kernel, as in
auto_round:gptq:exllamav2. The linears below `block_name_to_quantize` (up to 0.4
`to_quant_block_names`, or `quant_block_list`) are packed, and those that `extra_config` names: its
values replace bits and group_size, and more than 8 bits mean plain. A key of it that is not the
name of a module is a search expression; the first match counts. Sources: auto_round/inference/
convert_model.py of auto-round 0.16.1, and auto_round/export of 0.2, 0.3.1, 0.4.7 and 0.6.0.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from auditor.bounded.patterns import names_containing
from auditor.layouts._patterns import followed
from auditor.layouts._qweight import GEMM, GPTQ
from auditor.layouts.declared import integer_setting, object_or_empty
from auditor.layouts.packing import Declared, PackingLedger, Stored
from auditor.messages import described, named, quoted

BITS = (4, 8, 2, 3, 5, 6, 7)  # the likeliest first: the order decides if shapes do not
PLAIN = (16, 32)  # bits of a layer that stays plain

_GROUPS = range(-1, 2**31)
_PREFIXES = ("auto_round", "autoround")  # of a packing_format
_AWQ = frozenset({"awq", "auto_awq", "gemm"})
_FORMS = _AWQ | {"gptq", "auto_gptq", "gptqmodel", "auto"}
_KERNELS = frozenset({"exllama", "exllamav2", "triton", "tritonv2", "cuda"})
_BLOCKS = ("block_name_to_quantize", "to_quant_block_names", "quant_block_list")
# Lists of other writers, which the loader reads too; this package does not evaluate them.
_LISTS = ("dynamic", "modules_to_not_convert", "modules_in_block_to_quantize")
_KEYS = 2_000  # of extra_config that name no module, read in 0.1 s
_RUNS = 8  # of such keys with the same settings; each takes up to a second
_COMPARED = 100_000_000  # characters of names times blocks, in 0.1 s
_NUMBERED = re.compile(r"\w+\.[0-9].*")


class AutoRoundScheme(NamedTuple):
    """The settings of a module; None if the config does not state one."""

    bits: int | None  # one of PLAIN: the module is not packed
    group: int | None  # -1: all inputs together
    where: str


_UNSAID = AutoRoundScheme(None, None, "")


# --- how integers are packed ------------------------------------------------------------------


def unread(declared: Declared) -> str | None:
    """Return a packing that is not read here; None if integers are packed in words."""
    key, packing = _packing(declared)
    form = _form(packing) if isinstance(packing, str) else GPTQ
    kind = next(filter(_is_no_integer, _data_types(declared)), None)
    if form is not None and kind is None:
        return None
    unread_settings = [] if packing is None else [f"the {key} {_shown(packing)}"]
    unread_settings += [] if kind is None else [f"the data_type {_shown(kind)}"]
    return f"{named(declared.method)} with {' and '.join(unread_settings)}"


def declared_form(declared: Declared | None, ledger: PackingLedger) -> tuple[str | None, str]:
    """Return GPTQ or GEMM, or None if none is declared, and the config's words for it."""
    if declared is None:
        return None, ""
    key, packing = _packing(declared)
    if packing is None:
        return GPTQ, f"{declared.where} declares no packing_format, which means gptq"
    if not isinstance(packing, str):
        ledger.fault(f"{key} of {declared.where} is {described(packing)}; a string is needed")
        return None, ""
    return _form(packing), f"{declared.where} declares the {key} {quoted(packing)}"


def _packing(declared: Declared) -> tuple[str, object]:
    """The key that names the packing of integers, and its value."""
    key = "packing_format" if declared.settings.get("packing_format") is not None else "backend"
    return key, declared.settings.get(key)


def _form(packing: str) -> str | None:
    """Return GPTQ or GEMM; None for another packing."""
    words = packing.replace("-", "_").split(":")
    inner = frozenset(words[1:] if words[0] in _PREFIXES else words)
    if not inner <= _FORMS | _KERNELS:
        return None
    return GPTQ if inner.isdisjoint(_AWQ) else GEMM


def _data_types(declared: Declared) -> Iterator[object]:
    """Yield the data type of all layers, and those of packed layers with their own."""
    yield declared.settings.get("data_type")
    for own in object_or_empty(declared.settings.get("extra_config")).values():
        if object_or_empty(own).get("bits") not in PLAIN:
            yield object_or_empty(own).get("data_type")


def _is_no_integer(kind: object) -> bool:
    return kind is not None and not (isinstance(kind, str) and kind.startswith("int"))


def _shown(value: object) -> str:
    return quoted(value) if isinstance(value, str) else described(value)


# --- the settings of a module -----------------------------------------------------------------


class AutoRoundSchemes:
    """Finds the settings of a module in the config."""

    def __init__(self, declared: Declared | None, stored: Stored, ledger: PackingLedger) -> None:
        self.own: dict[str, AutoRoundScheme] = {}  # of the modules that extra_config names
        self._default, self._outside = _UNSAID, _UNSAID
        self._found: list[tuple[AutoRoundScheme, frozenset[str]]] = []
        self._vague: frozenset[str] | None = frozenset()  # ends of names; None means all names
        self._blocks: tuple[str, ...] = ()
        if declared is not None:
            self._read(declared, stored, ledger)

    def of(self, module: str) -> AutoRoundScheme:
        if module in self.own:
            return self.own[module]
        own_scheme = next((scheme for scheme, names in self._found if module in names), None)
        if own_scheme is not None:
            return own_scheme
        if self._vague is None or _tail(module) in self._vague:
            return _UNSAID
        inside = not self._blocks or any(block in f".{module}" for block in self._blocks)
        return self._default if inside else self._outside

    def _read(self, declared: Declared, stored: Stored, ledger: PackingLedger) -> None:
        self._default = _scheme(declared, _UNSAID, ledger)
        rest: list[tuple[str, AutoRoundScheme]] = []
        for key, scheme in _entries(declared, self._default, ledger):
            if key in stored.modules:
                self.own[key] = scheme
            else:
                rest.append((key, scheme))
        key, blocks = _blocks(declared)
        self._outside = AutoRoundScheme(PLAIN[0], None, f"{key} of {declared.where}")
        self._blocks = tuple({f".{_tail(block, last=True)}" for block in blocks if block})
        work = sum(map(len, stored.modules)) * len(self._blocks)
        too_much = work > _COMPARED or len(rest) > _KEYS
        if too_much or any(declared.settings.get(name) for name in _LISTS):
            self._vague = None
        else:
            self._search(rest, stored)

    def _search(self, rest: list[tuple[str, AutoRoundScheme]], stored: Stored) -> None:
        """Match keys that name no module; some may name a module before a renaming."""
        self._vague = frozenset(_tail(key) for key, _ in rest)
        for scheme, keys in groupby(rest, lambda pair: pair[1]):
            names = followed(names_containing, [key for key, _ in keys], stored.modules)
            if names is None or len(self._found) == _RUNS:
                self._vague = None
                return
            self._found.append((scheme, names))


def _scheme(declared: Declared, default: AutoRoundScheme, ledger: PackingLedger) -> AutoRoundScheme:
    bits = integer_setting(declared, "bits", (*BITS, *PLAIN), ledger, default=default.bits)
    group = integer_setting(declared, "group_size", _GROUPS, ledger, default=default.group)
    return AutoRoundScheme(bits, group, declared.where)


def _entries(
    declared: Declared, default: AutoRoundScheme, ledger: PackingLedger
) -> Iterator[tuple[str, AutoRoundScheme]]:
    """Yield the layers of extra_config that have settings."""
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
    """Return the key that names the blocks, and their names, or () without any."""
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

    With `last`, return the last part of a name without a number.
    """
    match = _NUMBERED.search(name)
    if match:
        return match.group()
    return name.rpartition(".")[2] if last else name
