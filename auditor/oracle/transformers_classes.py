"""Read the classes of the installed transformers from its source; an import would take seconds.

Three patterns of the source are matched; a test compares the result with an import.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct, field

_MAPPINGS = re.compile(r"MODEL_\w*MAPPING_NAMES")
_AUTO = re.compile(r"^class (AutoModel\w*)\(.*\):\n +_model_mapping = (\w+)$", re.MULTILINE)
_TYPE = re.compile(r'^    model_type(?:: \w+)? = "([^"]+)"', re.MULTILINE)
_CLASS = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)
_ABSTRACT = "PreTrainedModel"  # how names of classes without tensors of their own end


# Each library that the oracle builds with, and the extra that installs it.
EXTRAS = MappingProxyType({"transformers": "oracle", "diffusers": "diffusers", "timm": "timm"})


class InstalledLibrary(Struct, frozen=True):
    """An installed library: its version, its source folder and its model classes."""

    name: str  # "transformers 5.23.0"
    folder: Path
    # model type -> its auto classes, the base class first; only transformers has them
    listed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # AutoModelForX -> model type -> the class that it builds
    autos: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The name without the version."""
        return self.name.partition(" ")[0]

    def types(self, name: str) -> tuple[str, ...]:
        """Return the model types that list a class, then the model types of its source folder.

        The folder counts because a checkpoint of CLIP may declare CLIP's text model, for example.
        """
        if not _CLASS.fullmatch(name) or name.endswith(_ABSTRACT):
            return ()
        listing = (each for each, classes in self.listed.items() if name in classes)
        return tuple(dict.fromkeys((*listing, *_types_beside(self.folder, name))))


@lru_cache(maxsize=256)  # in a sweep many models have the same class without a closed form
def _types_beside(folder: Path, name: str) -> tuple[str, ...]:
    """Return the model types whose configs are in the folder that defines and exports a class."""
    definition, export = f"\nclass {name}(".encode(), f'"{name}"'.encode()
    model_types: list[str] = []
    for path in sorted(folder.glob("models/*/modeling_*.py")):
        source = path.read_bytes()  # 530 files of 24 MB in all, 30 ms
        if definition in source and export in source:
            for config in sorted(path.parent.glob("configuration_*.py")):
                model_types += _TYPE.findall(config.read_text(encoding="utf-8"))
    return tuple(model_types)


@lru_cache(maxsize=3)
def installed_library(key: str = "transformers") -> InstalledLibrary | None:
    """Return an installed library; None if the library or torch is not installed."""
    spec = find_spec(key)
    if find_spec("torch") is None or spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0])
    try:
        name = f"{key} {version(key)}"
        if key != "transformers":
            return InstalledLibrary(name, folder)
        source = (folder / "models/auto/modeling_auto.py").read_text(encoding="utf-8")
    except (PackageNotFoundError, OSError):
        return None
    return InstalledLibrary(name, folder, classes_by_model_type(source), auto_mappings(source))


_Mappings = Mapping[str, Mapping[str, tuple[str, ...]]]  # name -> model type -> classes


def classes_by_model_type(source: str) -> Mapping[str, tuple[str, ...]]:
    """Map each model type to its classes in all MODEL_*_MAPPING_NAMES, in the order of the source.

    The base class comes first, because MODEL_MAPPING_NAMES does.
    """
    listed: dict[str, dict[str, None]] = {}
    for name, rows in _mappings(source).items():
        for model_type, class_names in rows.items() if _MAPPINGS.fullmatch(name) else ():
            listed.setdefault(model_type, {}).update(dict.fromkeys(class_names))
    return {model_type: tuple(class_names) for model_type, class_names in listed.items()}


def auto_mappings(source: str) -> Mapping[str, Mapping[str, str]]:
    """Map auto class -> model type -> the class that is built, the first of several."""
    mappings = _mappings(source)
    return {
        auto: {model_type: found[0] for model_type, found in mappings[f"{name}_NAMES"].items()}
        for auto, name in _AUTO.findall(source)
        if f"{name}_NAMES" in mappings
    }


@lru_cache(maxsize=1)
def _mappings(source: str) -> _Mappings:
    """Return the tables of class names in Python source code."""
    tables: dict[str, Mapping[str, tuple[str, ...]]] = {}
    for statement in ast.parse(source).body:
        match statement:
            case ast.Assign([ast.Name(name)], ast.Call(args=[ast.List(rows)])):
                tables[name] = dict(_rows(rows, tables))
    return tables


def _rows(rows: list[ast.expr], tables: _Mappings) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield a table's pairs; `*list(OTHER.items())` stands for the pairs of another table."""
    for row in rows:
        match row:
            case ast.Tuple():
                model_type, class_names = ast.literal_eval(row)
                yield (
                    model_type,
                    (class_names,) if isinstance(class_names, str) else tuple(class_names),
                )
            case ast.Starred(
                ast.Call(args=[ast.Call(func=ast.Attribute(ast.Name(other), "items"))])
            ):
                yield from tables.get(other, {}).items()
