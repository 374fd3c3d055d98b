"""Two forms of a model's names: as save_pretrained writes them, and as they are in memory.

A state dict that was saved as it was has the names in memory, `vit.layers.0.mlp.fc1.weight`, and
loading takes those as well; save_pretrained writes `vit.encoder.layer.0.intermediate.dense.weight`.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from auditor.diagnosis.name_kinds import NameKind, name_pattern


class NameForms:
    """Which name on disk has which name in memory, where one tensor is one tensor in both.

    `in_memory` has pairs of one name of each kind: layers differ in numbers alone.
    """

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        alike = [(disk, memory) for disk, memory in pairs if _numbers(disk) == _numbers(memory)]
        patterns = {name_pattern(disk): name_pattern(memory) for disk, memory in alike}
        both = patterns.keys() & set(patterns.values())
        self._in_memory = {
            disk: memory
            for disk, memory in patterns.items()
            if disk != memory and memory not in both and disk not in both
        }

    @property
    def differ(self) -> bool:
        """Whether any name has another form in memory."""
        return bool(self._in_memory)

    @cached_property
    def _on_disk(self) -> Mapping[str, str]:
        return {memory: disk for disk, memory in self._in_memory.items()}

    def are_in_memory(self, kinds: Iterable[NameKind]) -> bool:
        """Whether more of the names end like one in memory than like one on disk."""
        more = 0
        for kind in kinds:
            ends = tuple(_ends(kind.pattern))
            more += any(end in self._on_disk for end in ends) * len(kind.names)
            more -= any(end in self._in_memory for end in ends) * len(kind.names)
        return more > 0

    def in_memory(self, name: str) -> str:
        """The name in memory of one on disk; any other as it is."""
        return _renamed(name, self._in_memory)

    def on_disk(self, name: str) -> str:
        """The name on disk of one in memory; any other as it is."""
        return _renamed(name, self._on_disk)


def _renamed(name: str, patterns: Mapping[str, str]) -> str:
    other = patterns.get(name_pattern(name))
    if other is None:
        return name
    numbers = iter(_numbers(name))
    return ".".join(next(numbers) if part == "0" else part for part in other.split("."))


def _numbers(name: str) -> list[str]:
    return [part for part in name.split(".") if part.isdecimal()]


def _ends(pattern: str) -> Iterator[str]:
    """`a.b.c`, `b.c` and `c`."""
    while pattern:
        yield pattern
        pattern = pattern.partition(".")[2]
