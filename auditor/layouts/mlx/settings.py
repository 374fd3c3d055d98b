"""The packing of modules in MLX's own keys of a config.

The modes, from the documentation of mlx.core.quantize: affine, 1 to 6 or 8 bits in groups of 32, 64
or 128; mxfp4 and mxfp8, 4 and 8 bits in groups of 32; nvfp4, 4 bits in groups of 16.
"""

from collections.abc import Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from auditor.layouts.declared import integer_setting
from auditor.layouts.packing import Declared, PackingLedger
from auditor.messages import described, quoted

AFFINE = "affine"
_AFFINE_BITS = frozenset({1, 2, 3, 4, 5, 6, 8})
_AFFINE_GROUPS = frozenset({32, 64, 128})
_AFFINE_USUAL = (4, 64)
_FIXED = {"mxfp4": (4, 32), "mxfp8": (8, 32), "nvfp4": (4, 16)}  # mode: (bits, group)


class MlxPacking(NamedTuple):
    """The packing of the numbers of one weight."""

    mode: str
    bits: int
    group: int

    @property
    def dtype(self) -> str:
        return {AFFINE: f"INT{self.bits}", "mxfp8": "F8_E4M3"}.get(self.mode, "F4")

    def __str__(self) -> str:
        return f"{self.mode}, {self.bits} bits in groups of {self.group}"


class MlxSettings(Struct, frozen=True, kw_only=True):
    """The settings of a config; None if one is absent or unusable."""

    top: MlxPacking | None
    own: Mapping[str, MlxPacking | None]  # by module, if it differs from the rest
    plain: frozenset[str]  # modules that are not packed

    def of(self, module: str) -> MlxPacking | None:
        return self.own.get(module, self.top)


def read_mlx_settings(declared: Declared | None, ledger: PackingLedger) -> MlxSettings:
    """Read the settings of all modules, and of each module that has its own."""
    if declared is None:
        return MlxSettings(top=None, own={}, plain=frozenset())
    own: dict[str, MlxPacking | None] = {}
    plain: set[str] = set()
    for module, value in declared.settings.items():
        if isinstance(value, Mapping):
            where = f"{quoted(module)} in {declared.where}"
            own[module] = _packing(replace(declared, settings=value, where=where), ledger)
        elif value is False:
            plain.add(module)
    return MlxSettings(top=_packing(declared, ledger), own=own, plain=frozenset(plain))


def _packing(declared: Declared, ledger: PackingLedger) -> MlxPacking | None:
    """Read a packing; an absent value is the default of `mlx.core.quantize`."""
    mode = declared.settings.get("mode", AFFINE)
    if mode == AFFINE:
        bits, groups, usual = _AFFINE_BITS, _AFFINE_GROUPS, _AFFINE_USUAL
    elif isinstance(mode, str) and mode in _FIXED:
        usual = _FIXED[mode]
        bits, groups = frozenset(usual[:1]), frozenset(usual[1:])
    else:
        known = ", ".join((AFFINE, *_FIXED))
        ledger.fault(f"mode of {declared.where} is {described(mode)}; one of {known} is needed")
        return None
    width = integer_setting(declared, "bits", bits, ledger, default=usual[0])
    group = integer_setting(declared, "group_size", groups, ledger, default=usual[1])
    return None if width is None or group is None else MlxPacking(mode, width, group)


def guessed_packing(words: int, groups: int, inputs: int, *, affine: bool) -> MlxPacking | None:
    """Return the packing of a row of `inputs` with these 32-bit words and groups, or None.

    mlx_lm.utils.infer_quant_config guesses likewise for modules that the config does not name.
    """
    if inputs < 1 or groups < 1 or words * 32 % inputs or inputs % groups:
        return None
    bits, group = words * 32 // inputs, inputs // groups
    if affine:
        known = bits in _AFFINE_BITS and group in _AFFINE_GROUPS
        return MlxPacking(AFFINE, bits, group) if known else None
    return next(
        (MlxPacking(mode, *pair) for mode, pair in _FIXED.items() if pair == (bits, group)), None
    )
