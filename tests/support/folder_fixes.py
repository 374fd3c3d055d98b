"""A fix of the folder that `spoiled_folder` makes, carried out without the making of a plan."""

import json
from collections.abc import Iterator
from pathlib import Path

from support.sharding import INDEX
from support.stopped_fixes import PREFIX

from auditor.checkpoint.snapshot import TextFile, WeightHeader
from auditor.diagnosis.json_edits import Edit, edited_json
from auditor.fixing.carrying_out import carry_out
from auditor.fixing.local_files import states_in
from auditor.fixing.new_files import index_with_names, renamed_header
from auditor.fixing.plan import FileChange

LAYERS = "num_hidden_layers"


def fix(folder: Path, *, in_place: bool = False) -> tuple[str, ...]:
    """Strip the prefix of all names, set the number of layers to 2; the names that are kept."""
    return carry_out(folder, tuple(_changes(folder)), states_in(folder), in_place=in_place)


def _changes(folder: Path) -> Iterator[FileChange]:
    config = (folder / "config.json").read_bytes()
    if json.loads(config)[LAYERS] != 2:
        edit = Edit((LAYERS,), json.loads(config)[LAYERS], 2)
        new = edited_json(config, (edit,))
        yield FileChange(
            file="config.json", before=config, after=new, size=len(config), edits=(edit,)
        )
    file_by_name: dict[str, str] = {}
    renames: dict[str, str] = {}
    for path in sorted(folder.glob("*.safetensors")):
        content = path.read_bytes()
        head = WeightHeader(name=path.name, size=len(content), prefix=content)
        names = [tensor.name for tensor in head.parsed.tensors]
        file_by_name |= {name.removeprefix(PREFIX): path.name for name in names}
        own = {name: name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)}
        renames |= own
        if own:
            yield FileChange(
                file=path.name,
                before=content[: 8 + head.parsed.header_length],
                after=renamed_header(head, own).prefix,
                size=len(content),
                renames=tuple(own.items()),
            )
    if not (folder / INDEX).exists():
        new = json.dumps({"metadata": {}, "weight_map": file_by_name}).encode()
        yield FileChange(file=INDEX, before=None, after=new, size=0)
    elif renames:
        old = TextFile(name=INDEX, content=(folder / INDEX).read_bytes())
        new = index_with_names(old, renames).content
        yield FileChange(file=INDEX, before=old.content, after=new, size=len(old.content))
