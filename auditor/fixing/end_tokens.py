"""A change of generation_config.json that adds missing end tokens."""

from collections.abc import Iterator

from auditor.checkpoint.change import Change
from auditor.checkpoint.json_edits import ABSENT, Edit
from auditor.checkpoint.snapshot import Snapshot, TextFile
from auditor.companions.companion_files import GENERATION
from auditor.findings import EosDisagrees
from auditor.fixing.new_files import json_values
from auditor.report import Diagnosis, Report, Unaudited

_KEY = "eos_token_id"


def generation_file(snapshot: Snapshot) -> TextFile | None:
    """Return a checkpoint's generation config; None if it was not read."""
    files = (file for file in snapshot.companions or () if file.name == GENERATION)
    return next(
        (TextFile(name=file.name, content=file.content) for file in files if file.content), None
    )


def end_token_causes(snapshot: Snapshot, outcome: Report | Unaudited) -> Iterator[Diagnosis]:
    """Yield a change that makes generation stop at every end token that other files name.

    Yield no change if there is no generation config, or if an end token is not known to be special.
    """
    file = generation_file(snapshot)
    for finding in outcome.findings:
        if file is None or not isinstance(finding, EosDisagrees) or not finding.ids:
            continue
        edit = Edit((_KEY,), json_values(file).get(_KEY, ABSENT), list(finding.ids))
        yield Diagnosis(
            cause=finding.kind,
            severity=finding.severity,
            summary=finding.reason,
            fix=finding.fix,
            change=Change(generation=(edit,)),
        )
