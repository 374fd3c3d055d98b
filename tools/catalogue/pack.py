"""The list of classes to learn, and the forms as data of the package."""

import json
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from auditor.analytic import catalogue, generated
from auditor.analytic.families import BY_DATA
from auditor.oracle.transformers_classes import EXTRAS, installed_library
from catalogue.described import described
from catalogue.layers import with_layers
from catalogue.probe import keys_read

_Chunks = dict[str, dict[str, dict[str, Any]]]  # model type -> class -> form
_DATA = Path(__file__).parents[2] / "auditor/data/generated"


def installed(library: str = "transformers") -> str:
    found = installed_library(library)
    if found is None:
        raise SystemExit(f"{library} is not installed")
    return found.name


def pairs(
    library: str, names: Sequence[str], *, by_hand: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield (model type, class) without a closed form, or with one, for these types or all.

    The model type of a class of diffusers is "diffusers".
    """
    if library == "diffusers":
        import diffusers  # noqa: PLC0415 - seconds

        models = (name for name in dir(diffusers) if _is_model(diffusers, name))
        yield from (("diffusers", name) for name in names or models)
        return
    found = installed_library()
    listed = found.listed if found else {}
    for model_type in names or listed:
        for name in listed.get(model_type, ()):
            if is_by_hand(model_type, name) is by_hand:
                yield model_type, name


def is_by_hand(model_type: str, name: str) -> bool:
    return name in catalogue.siblings(model_type) and model_type not in BY_DATA


def _is_model(diffusers: Any, name: str) -> bool:
    found = getattr(diffusers, name, None)
    return isinstance(found, type) and issubclass(found, diffusers.ModelMixin)


def work_file(work: Path, model_type: str, name: str) -> Path:
    return work / f"{model_type}--{name}.json"


def pack(work: Path) -> str:
    """Write a chunk for each model type with a form, and the index; return a summary.

    A class that was not learned here keeps the form that is shipped, if a library still has it.
    """
    library = installed_library()
    if library is None:
        raise SystemExit("transformers is not installed")
    current = {one.key: one.name for key in EXTRAS if (one := installed_library(key))}
    _DATA.mkdir(parents=True, exist_ok=True)
    before = {old.stem: json.loads(zlib.decompress(old.read_bytes())) for old in _DATA.glob("*.z")}
    components = {name for _, name in pairs("diffusers", ())} if "diffusers" in current else None

    def is_there(place: str, name: str) -> bool:
        if place.startswith("diffusers."):
            return components is None or name in components
        return name in library.listed.get(place, ())

    chunks: _Chunks = {
        place: kept
        for place, forms in before.items()
        if (kept := {name: form for name, form in forms.items() if is_there(place, name)})
    }
    for path in sorted(work.glob("*--*.json")):
        result = json.loads(path.read_text())
        if result["library"] not in current.values():
            continue
        model_type, name = path.stem.split("--", 1)
        place = f"diffusers.{name}" if model_type == "diffusers" else model_type
        chunks.setdefault(place, {}).pop(name, None)
        if form := result.get("form"):
            form = form if place.startswith("diffusers.") else with_layers(form)
            chunks[place][name] = {**form, "hidden": hidden_keys(form)}
    chunks = {place: forms for place, forms in sorted(chunks.items()) if forms}
    for old in _DATA.glob("*.z"):
        old.unlink()
    for place, forms in chunks.items():
        text = json.dumps(forms, separators=(",", ":"), sort_keys=True)
        (_DATA / f"{place}.z").write_bytes(zlib.compress(text.encode(), 9))
    types = {
        place: [name for name in library.listed.get(place, forms) if name in forms]
        for place, forms in sorted(chunks.items())
    }
    autos = {
        auto: {t: name for t, name in sorted(table.items()) if name in types.get(t, ())}
        for auto, table in sorted(library.autos.items())
    }
    index = {
        "libraries": sorted({f["library"] for forms in chunks.values() for f in forms.values()}),
        "types": types,
        "bases": {place: library.listed.get(place, names)[0] for place, names in types.items()},
        "autos": {auto: table for auto, table in autos.items() if table},
    }
    write_index(index)
    lettered, cached = described(types)
    write_index({**index, "caches": cached})
    size = sum(path.stat().st_size for path in _DATA.iterdir())
    listed = [(each, name) for each, names in library.listed.items() for name in names]
    by_hand = {pair for pair in listed if is_by_hand(*pair)}
    by_data = {pair for pair in listed if pair[1] in types.get(pair[0], ())}
    alone = {model_type for model_type, _ in by_hand | by_data}
    counts = f"{len(by_hand)} by hand, {len(by_data)} by data, of {len(listed)} in auto mappings"
    return "\n".join(
        (
            *_changes(before, chunks),
            f"{sum(map(len, types.values()))} forms of {len(types)} types, {size:,} bytes",
            f"classes without torch: {counts}",
            f"types without torch: {len(alone)} of {len(library.listed)}",
            f"types with a formula in letters: {lettered} of {len(types)}",
            f"decoders whose caches follow from their tensors: {len(cached)}",
        )
    )


def write_index(index: dict[str, Any]) -> None:
    (_DATA / "index.json").write_text(json.dumps(index, indent=0) + "\n")
    generated.index.cache_clear()
    generated.forms.cache_clear()


def hidden_keys(form: dict[str, Any]) -> list[str] | None:
    """Return the names of the keys that the class reads; None if that is not known."""
    if form["library"].startswith("diffusers"):  # its constructor takes no others
        return []
    try:
        return keys_read(form["target"], [form["model_type"], *form.get("part_types", {}).values()])
    except KeyError:  # a type that is not in the auto mappings
        return None


def _changes(before: _Chunks, after: _Chunks) -> Iterator[str]:
    """Yield a line for each class that was added, removed or changed."""
    for place in sorted({*before, *after}):
        old, new = before.get(place, {}), after.get(place, {})
        for name in sorted({*old, *new}):
            sides = [{**one.get(name, {}), "held": 0, "library": ""} for one in (old, new)]
            if sides[0] != sides[1]:
                what = "changed" if name in old and name in new else "added"
                yield f"{what if name in new else 'removed'}: {place} {name}"
