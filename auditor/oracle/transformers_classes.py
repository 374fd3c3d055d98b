"""Which classes the installed transformers has, read from its source: to import it takes seconds.

What is read is three patterns of that source; a test holds them to what an import says.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct, field

_MAPPINGS = re.compile(r"MODEL_\w*MAPPING_NAMES")
_AUTO = re.compile(r"^class (AutoModel\w*)\(.*\):\n +_model_mapping = (\w+)$", re.MULTILINE)
_TYPE = re.compile(r'^    model_type(?:: \w+)? = "([^"]+)"', re.MULTILINE)
_CLASS = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)
_ABSTRACT = "PreTrainedModel"  # at the end of the name of a class that has no tensors of its own


class InstalledLibrary(Struct, frozen=True):
    """The source of transformers, and the model classes that it names."""

    name: str  # "transformers 5.23.0"
    folder: Path
    listed: Mapping[str, tuple[str, ...]]  # model type -> its auto classes, the base class first
    # AutoModelForX -> model type -> the class that it builds
    autos: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def types(self, name: str) -> tuple[str, ...]:
        """The model types that have a class of that name: those that list it, then its folder's.

        The folder's, because a checkpoint of CLIP may be declared as its text model.
        """
        if not _CLASS.fullmatch(name) or name.endswith(_ABSTRACT):
            return ()
        listing = (each for each, classes in self.listed.items() if name in classes)
        return tuple(dict.fromkeys((*listing, *_types_beside(self.folder, name))))


@lru_cache(maxsize=256)  # many models of a night are of one class that has no closed form
def _types_beside(folder: Path, name: str) -> tuple[str, ...]:
    """The model types whose configs stand beside the file that defines and exports a class."""
    definition, export = f"\nclass {name}(".encode(), f'"{name}"'.encode()
    found: list[str] = []
    for path in sorted(folder.glob("models/*/modeling_*.py")):
        source = path.read_bytes()  # all of them: 530 files, 24 MB, 30 ms
        if definition in source and export in source:
            for config in sorted(path.parent.glob("configuration_*.py")):
                found += _TYPE.findall(config.read_text(encoding="utf-8"))
    return tuple(found)


@lru_cache(maxsize=1)
def installed_library() -> InstalledLibrary | None:
    """The transformers that could build models here; None without it or without torch."""
    spec = find_spec("transformers")
    if find_spec("torch") is None or spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0])
    try:
        name = f"transformers {version('transformers')}"
        source = (folder / "models/auto/modeling_auto.py").read_text(encoding="utf-8")
    except (PackageNotFoundError, OSError):
        return None
    return InstalledLibrary(name, folder, classes_by_model_type(source), auto_mappings(source))


_Mappings = Mapping[str, Mapping[str, tuple[str, ...]]]  # name -> model type -> classes


def classes_by_model_type(source: str) -> Mapping[str, tuple[str, ...]]:
    """Model type -> the classes that any MODEL_*_MAPPING_NAMES lists for it, in their order.

    MODEL_MAPPING_NAMES stands first, so that the base class does.
    """
    listed: dict[str, dict[str, None]] = {}
    for name, rows in _mappings(source).items():
        for model_type, found in rows.items() if _MAPPINGS.fullmatch(name) else ():
            listed.setdefault(model_type, {}).update(dict.fromkeys(found))
    return {model_type: tuple(found) for model_type, found in listed.items()}


def auto_mappings(source: str) -> Mapping[str, Mapping[str, str]]:
    """Auto class -> model type -> the class that it builds, of several the first."""
    mappings = _mappings(source)
    return {
        auto: {model_type: found[0] for model_type, found in mappings[f"{name}_NAMES"].items()}
        for auto, name in _AUTO.findall(source)
        if f"{name}_NAMES" in mappings
    }


@lru_cache(maxsize=1)
def _mappings(source: str) -> _Mappings:
    """The tables of class names that a source writes out."""
    found: dict[str, Mapping[str, tuple[str, ...]]] = {}
    for statement in ast.parse(source).body:
        match statement:
            case ast.Assign([ast.Name(name)], ast.Call(args=[ast.List(rows)])):
                found[name] = dict(_rows(rows, found))
    return found


def _rows(rows: list[ast.expr], known: _Mappings) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The pairs of a table; `*list(OTHER.items())` repeats those of another one."""
    for row in rows:
        match row:
            case ast.Tuple():
                model_type, found = ast.literal_eval(row)
                yield model_type, (found,) if isinstance(found, str) else tuple(found)
            case ast.Starred(
                ast.Call(args=[ast.Call(func=ast.Attribute(ast.Name(other), "items"))])
            ):
                yield from known.get(other, {}).items()
