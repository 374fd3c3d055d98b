"""The list of classes to learn, and the forms as data of the package."""

import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from auditor.analytic import catalogue
from auditor.oracle.transformers_classes import installed_library

_DATA = Path(__file__).parents[2] / "auditor/data/generated"


def installed() -> str:
    library = installed_library()
    if library is None:
        raise SystemExit("transformers is not installed")
    return library.name


def pairs(types: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (model type, class) without a closed form, the given types first or alone."""
    library = installed_library()
    listed = library.listed if library else {}
    for model_type in types or listed:
        for name in listed.get(model_type, ()):
            if name not in catalogue.siblings(model_type):
                yield model_type, name


def work_file(work: Path, model_type: str, name: str) -> Path:
    return work / f"{model_type}--{name}.json"


def pack(work: Path) -> str:
    """Write a chunk for each model type with a form, and the index; return a summary."""
    library = installed_library()
    if library is None:
        raise SystemExit("transformers is not installed")
    chunks: dict[str, dict[str, object]] = {}
    for path in sorted(work.glob("*--*.json")):
        result = json.loads(path.read_text())
        form = result.get("form")
        if form and form["library"] == library.name:
            model_type, name = path.stem.split("--", 1)
            chunks.setdefault(model_type, {})[name] = form
    _DATA.mkdir(parents=True, exist_ok=True)
    for old in _DATA.glob("*.z"):
        old.unlink()
    for model_type, forms in chunks.items():
        text = json.dumps(forms, separators=(",", ":"), sort_keys=True)
        (_DATA / f"{model_type}.z").write_bytes(zlib.compress(text.encode(), 9))
    types = {
        model_type: [name for name in library.listed[model_type] if name in chunks[model_type]]
        for model_type in sorted(chunks)
    }
    autos = {
        auto: {t: name for t, name in sorted(table.items()) if name in types.get(t, ())}
        for auto, table in sorted(library.autos.items())
    }
    index = {
        "library": library.name,
        "types": types,
        "bases": {model_type: library.listed[model_type][0] for model_type in types},
        "autos": {auto: table for auto, table in autos.items() if table},
    }
    (_DATA / "index.json").write_text(json.dumps(index, indent=0) + "\n")
    size = sum(path.stat().st_size for path in _DATA.iterdir())
    return f"{sum(map(len, types.values()))} forms of {len(types)} types, {size:,} bytes"
