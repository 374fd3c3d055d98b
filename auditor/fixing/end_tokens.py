"""A change of generation_config.json that adds missing end tokens."""

from collections.abc import Iterator

from msgspec.structs import replace

from auditor.checkpoint.snapshot import Snapshot, TextFile
from auditor.companions.companion_files import GENERATION
from auditor.diagnosis.case import Undoing
from auditor.diagnosis.json_edits import ABSENT, Edit, edited_json
from auditor.findings import EosDisagrees
from auditor.fixing.new_files import json_values
from auditor.report import Report, Unaudited

_KEY = "eos_token_id"


def generation_file(snapshot: Snapshot) -> TextFile | None:
    """Return a checkpoint's generation config; None if it was not read."""
    files = (file for file in snapshot.companions or () if file.name == GENERATION)
    return next(
        (TextFile(name=file.name, content=file.content) for file in files if file.content), None
    )


def with_generation(snapshot: Snapshot, file: TextFile | None) -> Snapshot:
    """Return the checkpoint with `file` as its generation config; unchanged if `file` is None."""
    if file is None or file == generation_file(snapshot):
        return snapshot
    companions = (
        replace(one, content=file.content) if one.name == file.name else one
        for one in snapshot.companions or ()
    )
    return replace(snapshot, companions=tuple(companions))


def end_token_undoings(snapshot: Snapshot, outcome: Report | Unaudited) -> Iterator[Undoing]:
    """Yield a change that makes generation stop at every end token that other files name.

    Yield no change if there is no generation config, or if an end token is not known to be special.
    """
    file = generation_file(snapshot)
    for finding in outcome.findings:
        if file is None or not isinstance(finding, EosDisagrees) or not finding.ids:
            continue
        edit = Edit((_KEY,), json_values(file).get(_KEY, ABSENT), list(finding.ids))
        content = edited_json(file.content, (edit,))
        yield Undoing(
            cause=finding.kind,
            snapshot=with_generation(snapshot, replace(file, content=content)),
            summary=finding.reason,
            fix=finding.fix,
        )
