"""dtype-doubled: numbers are stored in 32 bits although the config declares 16: twice the space.

To do: Save the weights in the declared dtype, or declare in the config the dtype that is stored.
"""

from collections.abc import Iterator

from auditor.diagnosis.case import Case, Proposal
from auditor.findings import WrongDtype

CAUSE = "dtype-doubled"
_HALVES = {"F16": "float16", "BF16": "bfloat16"}


def proposals(case: Case) -> Iterator[Proposal]:
    for finding in case.report.findings:
        if not isinstance(finding, WrongDtype) or finding.declared not in _HALVES:
            continue
        if {tensor.dtype for tensor in finding.tensors} != {"F32"}:
            continue
        declared = _HALVES[finding.declared]
        key = next((one for one in ("dtype", "torch_dtype") if one in case.config), "dtype")
        yield Proposal(
            cause=CAUSE,
            change=case.setting({key: "float32"}),
            fields=((key, declared, "float32"),),
            summary=f"the config declares {declared}, the files hold float32 in twice the space",
            fix=f"save the weights in {declared}, or set {key} to float32 in config.json",
            evidence=(f"{len(finding.tensors):,} tensors are F32",),
        )
