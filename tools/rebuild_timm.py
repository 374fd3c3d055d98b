"""Write auditor/data/timm.zip: the tensors of every architecture of timm, by family.

A member for each file of timm's models: `{"nodes": [...], "forms": {architecture: [form, ...]}}`,
as `auditor/analytic/timm_table.py` reads it. In networks of a fixed size, a form holds for an input
size of timm's own pretrained_cfgs. Each is built on the meta device
with other numbers of classes and channels and without a head; an axis that moves with one of them,
and in proportion, is written as its multiple, and a form of which another axis moves is left out.
"""

import json
import warnings
import zipfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from support.libraries import with_timm

from auditor.analytic import ExpectedTensor, Role
from auditor.errors import CheckpointError
from auditor.oracle.inventory import inventory

PLACE = Path(__file__).resolve().parents[1] / "auditor" / "data" / "timm.zip"

Row = tuple[str, list[int | str]]  # a name; a letter for the role, and the axes
Inventory = Mapping[str, ExpectedTensor]
ROLES = {Role.PARAMETER: "p", Role.BUFFER: "b", Role.LEGACY: "l"}
MOVED = {"n": (1000, 2009), "c": (3, 5)}  # the numbers of classes and of channels


class Form(NamedTuple):
    """The tensors of an architecture, and letters that `timm_table.py` explains."""

    letters: str
    rows: list[Row]


def form_of(config: Mapping[str, Any]) -> Form | None:
    """Return the form of an architecture; None if an axis moves in no proportion."""
    (classes, many), (channels, more) = MOVED.values()
    default = _inventory(config, classes, channels)
    if default is None:
        return None
    moved, letters = _inventory(config, many, more), ""
    if moved is None:
        moved, letters = _inventory(config, many, channels), "c"
    unfixed = {**config, "pretrained_cfg": {"input_size": (3, 224, 224)}}
    if size_of(config["pretrained_cfg"]) and _inventory(unfixed, classes, channels) == default:
        letters += "s"
    return form_of_inventories(default, moved, _inventory(config, 0, channels), letters)


def form_of_inventories(
    default: Inventory, moved: Inventory | None, headless: Inventory | None, letters: str
) -> Form | None:
    """Return the form by three builds; an uppercase role is of the head, which 0 classes lack."""
    if moved is None or moved.keys() != default.keys():
        return None
    rows: list[Row] = []
    for name, tensor in default.items():
        axes = [_axis(*pair) for pair in zip(tensor.shape, moved[name].shape, strict=True)]
        if tensor.role not in ROLES or None in axes:
            return None
        role = ROLES[tensor.role]
        is_head = headless is not None and name not in headless
        rows.append((name, [role.upper() if is_head else role, *axes]))
    if headless is None or any(
        name not in default or default[name].shape != one.shape for name, one in headless.items()
    ):
        letters += "0"
    return Form(letters, rows)


def _axis(old: int, new: int) -> int | str | None:
    """Return an axis as a number or a multiple of what moved it, "3c"; None if it is neither."""
    if old == new:
        return old
    letters = (
        f"{old // before}{letter}"
        for letter, (before, after) in MOVED.items()
        if old % before == 0 and old // before * after == new
    )
    return next(letters, None)


def _inventory(config: Mapping[str, Any], classes: int, channels: int) -> Inventory | None:
    source = config["pretrained_cfg"]
    size = (channels, *source["input_size"][1:])
    built = {**config, "num_classes": classes, "pretrained_cfg": {**source, "input_size": size}}
    try:
        tensors = inventory("timm", config["architecture"], built).tensors
    except CheckpointError:  # the architecture refuses the number
        return None
    return {one.name: one for one in tensors}


# --- rows as nodes: equal modules of a family are written once ------------------------------------


class Nodes:
    """The distinct modules and tensors of a family, each after those that it consists of."""

    def __init__(self) -> None:
        self.listed: list[Any] = []
        self._places: dict[str, int] = {}

    def add(self, rows: list[Row]) -> int:
        """Return the place of a module's node, which names children by how far before it they are.

        Equal children in a row share a key. Distances are compressed better than places are.
        """
        children: list[tuple[str, int]] = []
        grouped: dict[str, list[Row]] = defaultdict(list)
        for name, shape in rows:
            first, _, rest = name.partition(".")
            grouped[first].append((rest, shape))
        for first, below in grouped.items():
            is_tensor = below[0][0] == ""
            children.append((first, self._place(below[0][1]) if is_tensor else self.add(below)))
        return self._place(dict(_runs(children)), is_module=True)

    def _place(self, node: Any, *, is_module: bool = False) -> int:
        text = json.dumps(node)
        if text not in self._places:
            place = self._places[text] = len(self.listed)
            at = {name: place - child for name, child in node.items()} if is_module else node
            self.listed.append(at)
        return self._places[text]


def _runs(children: list[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Yield children; equal ones named by consecutive numbers as "FIRST-LAST"."""

    def run(numbered: tuple[int, tuple[str, int]]) -> tuple[object, int]:
        at, (name, node) = numbered
        return (int(name) - at if name.isdecimal() else name, node)

    for _, group in groupby(enumerate(children), run):
        members = [child for _, child in group]
        first, last = members[0][0], members[-1][0]
        yield (first if first == last else f"{first}-{last}", members[0][1])


# --- the file -------------------------------------------------------------------------------------


def configs_of(architecture: str) -> list[dict[str, Any]]:
    """Return a config for each fixed size of an architecture's pretrained_cfgs."""
    from timm.models import get_arch_pretrained_cfgs  # noqa: PLC0415 - seconds

    distinct = {}
    for source in get_arch_pretrained_cfgs(architecture).values():
        values = source.to_dict()
        config = {"architecture": architecture, "pretrained_cfg": values}
        distinct.setdefault(size_of(values), config)
    return list(distinct.values())


def size_of(source: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the height and width of a network of a fixed size; None for other networks."""
    return tuple(source["input_size"][1:]) if source.get("fixed_input_size") else None


def family_of(module: str) -> dict[str, Any]:
    """Return the nodes and forms of the architectures in one file of timm's models."""
    import timm  # noqa: PLC0415 - seconds

    nodes, forms = Nodes(), {}
    for architecture in sorted(timm.list_models(module=module)):
        of_one = []
        for config in configs_of(architecture):
            if form := form_of(config):
                size = size_of(config["pretrained_cfg"])
                of_one.append([size, form.letters, nodes.add(form.rows)])
        if of_one:
            forms[architecture] = of_one
    return {"nodes": nodes.listed, "forms": forms}


def table() -> dict[str, dict[str, Any]]:
    from timm.models import list_modules  # noqa: PLC0415 - seconds

    families = {module: family_of(module) for module in sorted(list_modules())}
    return {module: family for module, family in families.items() if family["forms"]}


def write(families: Mapping[str, Mapping[str, Any]], library: str, place: Path = PLACE) -> None:
    """Write the members; the index has the library's version and the family of each name."""
    of_name = {name: family for family, one in families.items() for name in one["forms"]}
    members = {"index": {"library": library, "families": of_name}, **families}
    with zipfile.ZipFile(place, "w", zipfile.ZIP_LZMA) as file:
        for name, content in members.items():
            info = zipfile.ZipInfo(f"{name}.json")  # dated 1980: the same bytes each time
            info.compress_type = zipfile.ZIP_LZMA
            file.writestr(info, json.dumps(content, separators=(",", ":")))


def main() -> None:
    with_timm()
    import timm  # noqa: PLC0415 - seconds

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        families = table()
    write(families, f"timm {timm.__version__}")
    print(f"{sum(len(one['forms']) for one in families.values())} architectures")
    print(f"{PLACE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
