"""custom-code: the class is the repository's own code, with which nothing can be compared.

To do: Audit the model `--as` a class of transformers that has the same tensors; or read the code
and load the model with `trust_remote_code=True`.
"""

from collections.abc import Iterator, Mapping

from auditor.checkpoint.snapshot import Snapshot
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
    yield Diagnosis(
        cause=CAUSE,
        severity=Severity.INFO,
        summary=f"the class is the repository's own code, {quoted(custom)} in auto_map, which is "
        "not run: files and index were checked, names and shapes were compared with nothing",
        fix="audit it --as a class of transformers that has the same tensors, or read the code and "
        "load it with trust_remote_code=True",
        evidence=(f"auto_map of {snapshot.config.name} names {quoted(custom)}",),
    )
