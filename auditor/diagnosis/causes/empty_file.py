"""empty-file: a weight file contains no tensor, like the file of one rank of ZeRO-3.

To do: Save the weights again, with the parameters of all ranks gathered.
"""

from collections.abc import Iterator

from auditor.diagnosis.case import Case, Proposal
from auditor.errors import CheckpointError
from auditor.messages import listed

CAUSE = "empty-file"


def proposals(case: Case) -> Iterator[Proposal]:
    """Yield a proposal that adds the missing tensors, if some weight file contains no tensor."""
    empty = [
        head.name
        for head in case.snapshot.headers
        if not isinstance(head.parsed, CheckpointError) and not head.parsed.tensors
    ]
    if empty and case.missing:
        has = "has no tensor" if len(empty) == 1 else "have no tensors"
        yield Proposal(
            cause=CAUSE,
            change=case.adding_missing(),
            summary=f"{listed(empty)} {has}: the parameters were not gathered when it was saved, "
            "as under ZeRO-3",
            fix="save the weights again with gathered parameters: "
            "stage3_gather_16bit_weights_on_model_save of DeepSpeed, or accelerator.get_state_dict",
            evidence=(f"the header of {empty[0]} lists no tensor",),
        )
