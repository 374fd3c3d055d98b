"""Write auditor/data/pipelines.json: what the pipelines of the installed diffusers require.

`required` has, by class of pipeline, the arguments of its constructor that have no default and
that the class does not call optional; `schedulers` are the names of all classes of schedulers.
"""

import ast
import json
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

PLACE = Path(__file__).resolve().parents[1] / "auditor" / "data" / "pipelines.json"


def classes(folder: Path) -> Iterator[ast.ClassDef]:
    """Yield the classes of the files below a folder, which are read and not imported."""
    for file in sorted(folder.rglob("*.py")):
        if "deprecated" not in file.parts:
            yield from (
                node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ClassDef)
            )


def required(node: ast.ClassDef) -> list[str] | None:
    """Return the components that a pipeline's constructor needs; None if it has no constructor."""
    optional: list[str] = []
    names = None
    for item in node.body:
        match item:
            case ast.Assign(targets=[ast.Name("_optional_components")], value=value):
                optional = ast.literal_eval(value)
            case ast.FunctionDef(name="__init__", args=arguments):
                positional = arguments.args[1 : len(arguments.args) - len(arguments.defaults)]
                keywords = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
                names = [one.arg for one in positional]
                names += [one.arg for one, default in keywords if default is None]
    return None if names is None else [name for name in names if name not in optional]


def pipelines() -> dict[str, object]:
    [place] = find_spec("diffusers").submodule_search_locations
    found = {
        node.name: names
        for node in classes(Path(place) / "pipelines")
        if node.name.endswith("Pipeline") and (names := required(node))
    }
    schedulers = {node.name for node in classes(Path(place) / "schedulers")}
    return {
        "diffusers": version("diffusers"),
        "required": dict(sorted(found.items())),
        "schedulers": sorted(name for name in schedulers if name.endswith("Scheduler")),
    }


def main() -> None:
    PLACE.write_text(json.dumps(pipelines(), separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
