"""The schemes by which an engine computes with quantized weights, as its own code picked them.

`make engines` asks an engine for each declaration of a table. What a platform decides is recorded
by compute capability, the number of a GPU's generation: 80 for 8.0. The number 0 is the CPU.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from auditor.bounded.json_text import is_identical

UNKNOWN = "unknown"
_MOST_GROUPS = 16
_DEEPEST = 4  # config_groups.group_0.weights
_BITS = ("bits", "num_bits", "w_bit")
_COMPRESSED = "compressed-tensors"
_ARGUMENTS = ("weights", "input_activations", "output_activations")

Settings = Mapping[str, Any]


class DeclaredSchemes(Struct, frozen=True):
    """The schemes for declarations that differ in the listed values only."""

    method: str
    values: Mapping[str, tuple[Any, ...]]  # of a key; null stands for a key that is absent
    # From each compute capability on: the scheme, false for an error, null if it was not found.
    by: tuple[tuple[int, str | bool | None], ...]
    model_types: tuple[str, ...] = ()  # empty: all model types that no other row of the method has
    raises: str = ""  # the error, if there is one on every platform

    @property
    def loads(self) -> bool | None:
        """Whether the engine takes the declaration; None if the CPU does not and some GPUs do."""
        outcomes = [found for _, found in self.by]
        if outcomes[0] is not False:
            return True
        return None if any(found is not False for found in outcomes) else False

    @property
    def text(self) -> str:
        """The schemes with their compute capabilities; "unknown" if none was found."""
        steps = [step for step in self.by if step[0]] or [*self.by]
        while steps and steps[0][1] is False:
            steps.pop(0)
        if not steps:
            return "none"
        parts = [
            _NO_SCHEME.get(found, found) + (f" from compute capability {at / 10}" if at else "")
            for at, found in steps
        ]
        return UNKNOWN if {found for _, found in steps} == {None} else ", ".join(parts)


_NO_SCHEME: Mapping[str | bool | None, Any] = {None: UNKNOWN, False: "none"}


def declared_schemes(
    rows: tuple[DeclaredSchemes, ...],
    keys: Mapping[str, tuple[str, ...]],
    method: str,
    settings: Settings,
    model_type: str | None,
) -> tuple[DeclaredSchemes, ...]:
    """Return the recorded schemes of a declaration, one for each group of modules.

    `keys` are those that the engine reads of a declaration, by method. Return an empty tuple if
    the schemes of one group were not recorded.
    """
    of_method = [row for row in rows if row.method == method]
    special = {one for row in of_method for one in row.model_types}
    found: list[DeclaredSchemes] = []
    for number, group in enumerate(_groups(method, settings)):
        fitting = [
            row
            for row in of_method
            if (model_type in row.model_types if model_type in special else not row.model_types)
            and all(
                any(is_identical(group.get(key), one) for one in row.values.get(key) or (None,))
                for key in keys[method]
            )
        ]
        if len(fitting) != 1 or number == _MOST_GROUPS:
            return ()
        found += fitting
    return tuple(found)


def scheme_text(found: tuple[DeclaredSchemes, ...]) -> str:
    """Return the schemes of a declaration's groups; "unknown" if they were not recorded."""
    texts = dict.fromkeys(row.text for row in found)
    return UNKNOWN if not texts or UNKNOWN in texts else " and ".join(texts)


def bits_of(settings: Any, depth: int = 0) -> frozenset[int]:
    """Return the numbers of bits that a declaration has."""
    if not isinstance(settings, Mapping) or depth == _DEEPEST:
        return frozenset()
    inner = frozenset[int]().union(*(bits_of(one, depth + 1) for one in settings.values()))
    return inner | {settings[key] for key in _BITS if type(settings.get(key)) is int}


def _groups(method: str, settings: Settings) -> Iterator[Settings]:
    """Yield the settings of each group of modules, in one mapping each."""
    groups = settings.get("config_groups")
    if method != _COMPRESSED or not isinstance(groups, Mapping):
        yield settings
        return
    for group in groups.values():
        if not isinstance(group, Mapping):
            yield {"format": group}
            continue
        flat = {**settings, "format": group.get("format") or settings.get("format")}
        for part in _ARGUMENTS:
            arguments = group.get(part)
            flat[part] = isinstance(arguments, Mapping) or arguments
            for key, value in arguments.items() if isinstance(arguments, Mapping) else ():
                flat[f"{part}.{key}"] = value
        yield flat
