"""Write auditor/data/kept_in_f32.json: the parameters that transformers keeps in 32 bits, by type.

`{model type: [parts of names]}`, from `_keep_in_fp32_modules` and `_keep_in_fp32_modules_strict` of
every class in a type's modules. Those files are parsed and not imported.
"""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

PLACE = Path(__file__).resolve().parents[1] / "auditor" / "data" / "kept_in_f32.json"
LISTS = frozenset({"_keep_in_fp32_modules", "_keep_in_fp32_modules_strict"})


def kept_in_f32() -> dict[str, list[str]]:
    from transformers import CONFIG_MAPPING, models  # noqa: PLC0415 - a second

    parts_by_folder: dict[str, set[str]] = {}
    for file in Path(models.__file__).parent.glob("*/modeling_*.py"):
        parts_by_folder.setdefault(file.parent.name, set()).update(parts_in(file.read_text()))
    folders = {each: CONFIG_MAPPING[each].__module__.split(".")[-2] for each in CONFIG_MAPPING}
    return {
        model_type: sorted(parts)
        for model_type, folder in sorted(folders.items())
        if (parts := parts_by_folder.get(folder))
    }


def parts_in(source: str) -> Iterator[str]:
    """Yield the strings in the lists of a module's classes; a module without them is not parsed."""
    for node in ast.walk(ast.parse(source)) if "_keep_in_fp32_modules" in source else ():
        match node:
            case ast.Assign(targets=[ast.Name(name)], value=ast.List() | ast.Set() as values):
                if name in LISTS:
                    yield from ast.literal_eval(values)


def main() -> None:
    lines = (f" {json.dumps(key)}: {json.dumps(parts)}" for key, parts in kept_in_f32().items())
    PLACE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
