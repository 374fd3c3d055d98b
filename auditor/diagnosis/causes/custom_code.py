"""custom-code: the class is the repository's own code, with which nothing can be compared.

To do: Audit the model `--as` a class of transformers that has the same tensors; or read the code
and load the model with `trust_remote_code=True`.
"""

from collections.abc import Iterator

from auditor.analytic import read_config
from auditor.analytic.target import custom_class
from auditor.checkpoint.snapshot import Snapshot
from auditor.errors import CheckpointError
from auditor.findings import CodeNotThere, Severity
from auditor.messages import quoted
from auditor.report import Diagnosis, Report, Unaudited

CAUSE = "custom-code"


def declared(outcome: Report | Unaudited, snapshot: Snapshot) -> Iterator[Diagnosis]:
    """Yield the diagnosis of a class in custom code, if the code exists and prevented the audit."""
    is_absent = any(isinstance(finding, CodeNotThere) for finding in outcome.findings)
    if isinstance(outcome, Report) or snapshot.config is None or is_absent:
        return
    try:
        config = read_config(snapshot.config.name, snapshot.config.content)
        custom = custom_class(config, next(iter(config.architectures), None))
    except CheckpointError:
        return
    if custom is None or outcome.target != custom.rpartition(".")[2]:
        return
    yield Diagnosis(
        cause=CAUSE,
        severity=Severity.INFO,
        summary=f"the class is the repository's own code, {quoted(custom)} in auto_map, which is "
        "not run: files and index were checked, names and shapes were compared with nothing",
        fix="audit it --as a class of transformers that has the same tensors, or read the code and "
        "load it with trust_remote_code=True",
        evidence=(f"auto_map of {snapshot.config.name} names {quoted(custom)}",),
    )
