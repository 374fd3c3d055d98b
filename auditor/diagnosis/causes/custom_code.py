"""custom-code: the class is the repository's own code, with which nothing can be compared.

To do: Read the code and load the model with `trust_remote_code=True`; if a class of transformers
has the same names, audit the model `--as` that class.
"""

from collections.abc import Iterator, Mapping

from auditor.analytic.likeness import class_by_names
from auditor.checkpoint.snapshot import Snapshot
from auditor.errors import CheckpointError
from auditor.findings import CodeNotThere, Severity
from auditor.messages import quoted
from auditor.report import Diagnosis, Report, Unaudited

CAUSE = "custom-code"


def declared(outcome: Report | Unaudited, snapshot: Snapshot) -> Iterator[Diagnosis]:
    """Yield the diagnosis of a class in custom code, if the code exists and prevented the audit."""
    is_absent = any(CodeNotThere.describes(finding) for finding in outcome.findings)
    if isinstance(outcome, Report) or snapshot.config is None or is_absent:
        return
    code = snapshot.config.values.get("auto_map")
    classes = (
        [one for one in code.values() if isinstance(one, str)] if isinstance(code, Mapping) else []
    )
    custom = next((one for one in classes if one.rpartition(".")[2] == outcome.target), None)
    if custom is None:
        return
    remedy = "read the code and load it with trust_remote_code=True"
    tables = [head.parsed for head in snapshot.headers]
    read = (table for table in tables if not isinstance(table, CheckpointError))
    names = (tensor.name for table in read for tensor in table.tensors)
    like = class_by_names(names, outcome.model_type)
    if like is not None and like.model_type == outcome.model_type:
        remedy = f"audit it --as {like.target}, which has its names, or {remedy}"
    yield Diagnosis(
        cause=CAUSE,
        severity=Severity.INFO,
        summary=f"the class is the repository's own code, {quoted(custom)} in auto_map, which is "
        "not run: files and index were checked, names and shapes were compared with nothing",
        fix=remedy,
        evidence=(f"auto_map of {snapshot.config.name} names {quoted(custom)}",),
    )
