"""half-resized: the token embedding and the head disagree on their number of rows.

No value of `vocab_size` fits both. The tensors whose number of rows is not the declared one are
assumed to have the declared number.

To do: Resize both with `model.resize_token_embeddings(...)` and save the model again.
"""

from collections.abc import Iterator

from auditor.analytic.config_keys import key_at
from auditor.analytic.dims import Dim, dim
from auditor.analytic.outline import follow
from auditor.checkpoint.changes import with_shapes
from auditor.diagnosis.case import Case, Undoing
from auditor.errors import CheckpointError

CAUSE = "half-resized"
_VOCABULARY = "vocab_size"


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield the model with the declared rows in embedding and head, if their rows differ."""
    pairs = {pair.stored.name: pair for pair in case.mismatched}
    if not pairs:
        return
    try:
        expected = case.tree(case.snapshot)
    except CheckpointError:
        return
    if expected is None:
        return
    keys: dict[str, int] = {}
    of_key: dict[str, dict[str, int]] = {}  # vocabulary key -> tensor name -> stored rows
    for name, shape in case.shapes.items():
        disk_name = pairs[name].expected.name if name in pairs else case.on_disk(name)
        is_in_list = any(part.isdecimal() for part in disk_name.split("."))  # not the vocabulary
        sizes = None if is_in_list else follow(expected.tree, disk_name).shape
        if sizes and shape and isinstance(sizes[0], Dim) and len(shape) == len(sizes):
            symbols = sizes[0].symbols
            of_rows = next((one for one in symbols if one.key.endswith(_VOCABULARY)), None)
            if of_rows is not None and sizes[0] == dim(of_rows):
                keys[of_rows.key] = of_rows.value
                of_key.setdefault(of_rows.key, {})[name] = shape[0]
    odd = [path for path, rows in of_key.items() if not pairs.keys().isdisjoint(rows)]
    if len(odd) != 1 or len(set(of_key[odd[0]].values())) < 2:  # noqa: PLR2004 - they disagree
        return
    path, rows, declared = odd[0], of_key[odd[0]], keys[odd[0]]
    others = {name: count for name, count in rows.items() if count != declared}
    if not others or not others.keys() <= pairs.keys():
        return
    full = {name: (declared, *(case.shapes[name] or ())[1:]) for name in others}
    key = key_at(case.config, path, declared)
    first, count = next(iter(others.items()))
    agreeing = [name for name, count in rows.items() if count == declared]
    counts = [f"{name} has {number:,}" for name, number in list(rows.items())[1:3]]
    beside = f"{agreeing[0]} has {declared:,} as declared" if agreeing else " and ".join(counts)
    yield Undoing(
        cause=CAUSE,
        snapshot=with_shapes(case.snapshot, full),
        fields=((key.path, declared, count),),
        summary=f"{first} has {count:,} rows, and {beside}: one of the two was resized",
        fix="resize both with model.resize_token_embeddings(...) and save the model again, or "
        f"load the half that was resized from a checkpoint with {declared:,} rows",
        evidence=tuple(f"{name}: {number:,} rows" for name, number in rows.items()),
    )
