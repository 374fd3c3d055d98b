"""half-resized: the token embedding and the head disagree on their number of rows.

No value of `vocab_size` fits both. The tensors whose number of rows is not the declared one are
assumed to have the declared number.

To do: Resize both with `model.resize_token_embeddings(...)` and save the model again.
"""

from collections.abc import Iterator, Mapping

from auditor.analytic.config_keys import key_at
from auditor.analytic.dims import Dim, dim
from auditor.analytic.lookup import follow
from auditor.diagnosis.case import Case, Proposal
from auditor.names.kinds import outermost

CAUSE = "half-resized"
_VOCABULARY = "vocab_size"


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield the model with the declared rows in embedding and head, if their rows differ."""
    disk_names = {pair.stored.name: pair.expected.name for pair in case.mismatched}
    rows_by_key = _rows_by_key(case, disk_names) if disk_names else {}
    odd = [one for one, rows in rows_by_key.items() if not disk_names.keys().isdisjoint(rows)]
    if len(odd) != 1 or len(set(rows_by_key[odd[0]].values())) == 1:
        return
    [(path, declared)] = odd
    rows = rows_by_key[path, declared]
    others = {name: count for name, count in rows.items() if count != declared}
    if not others.keys() <= disk_names.keys():
        return
    first, count = next(iter(others.items()))
    agreeing = [f"{name} has {declared:,} as declared" for name in rows if name not in others]
    beside = agreeing[:1] or [f"{name} has {rows[name]:,}" for name in list(rows)[1:3]]
    full = {name: (declared, *(case.shapes[name] or ())[1:]) for name in others}
    yield Proposal(
        cause=CAUSE,
        change=case.reshaping(full),
        fields=((key_at(case.config, path, declared).path, declared, count),),
        summary=f"{first} has {count:,} rows, and {' and '.join(beside)}: one of the two was "
        "resized",
        fix="resize both with model.resize_token_embeddings(...) and save the model again, or "
        f"load the half that was resized from a checkpoint with {declared:,} rows",
        evidence=tuple(f"{name}: {number:,} rows" for name, number in rows.items()),
    )


def _rows_by_key(case: Case, names: Mapping[str, str]) -> dict[tuple[str, int], dict[str, int]]:
    """Return {(vocabulary key, its value): {tensor: stored rows}}, without tensors of layers."""
    rows_by_key: dict[tuple[str, int], dict[str, int]] = {}
    expected = case.own_tree
    for name, shape in case.shapes.items() if expected else ():
        disk_name = names.get(name) or case.on_disk(name)
        is_in_list = any(part.isdecimal() for part in disk_name.split("."))
        sizes = None if is_in_list or not expected else follow(expected.tree, disk_name).shape
        if sizes and shape and len(shape) == len(sizes) and isinstance(sizes[0], Dim):
            for symbol in sizes[0].symbols:
                if symbol.key.endswith(_VOCABULARY) and sizes[0] == dim(symbol):
                    rows_by_key.setdefault((symbol.key, symbol.value), {})[name] = shape[0]
    for pair in case.mismatched:  # a tied head has no formula of its own
        if expected is None or follow(expected.tree, pair.expected.name).shape is not None:
            continue
        for (_, rows), found in rows_by_key.items():
            if pair.expected.shape[:1] == (rows,) and not outermost(pair.stored.name):
                found.setdefault(pair.stored.name, (pair.stored.shape or (0,))[0])
    return rows_by_key
