"""The holdings of a case: of its headers, or of its index where there are none."""

from auditor.containers.index import parse_index
from auditor.diagnosis.case import Case
from auditor.diagnosis.solving.holdings import Holdings, held
from auditor.errors import CheckpointError


def holdings_of(case: Case) -> Holdings:
    """Names and shapes, unpacked; names alone where only an index has them."""
    snapshot = case.snapshot
    files = {snapshot.packing.name: snapshot.packing.content} if snapshot.packing else {}
    if case.stored or snapshot.index is None:
        return held(case.stored, case.config, files)
    try:
        index = parse_index(snapshot.index.name, snapshot.index.content)
    except CheckpointError:
        return Holdings({})
    return Holdings(dict.fromkeys(index.weight_map))
