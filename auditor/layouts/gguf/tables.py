"""How the tables are written that say what GGUF calls the modules of a model."""

from collections.abc import Mapping
from types import MappingProxyType

Table = Mapping[str, str]


def names_table(*parts: Table) -> Table:
    return MappingProxyType({key: name for part in parts for key, name in part.items()})


def names_in_blocks(path: str, names: Table, before: str = "") -> Table:
    return {f"{before}@{key}": f"{path}.{{n}}.{name}" for key, name in names.items()}
