"""Whether other names would close anything: of a large model, before it is audited again."""

from auditor.diagnosis.case import Case, Undoing

# Tensors from which on an audit takes longer than a look at the names: 0.1 s.
LARGE = 5000


def promises(case: Case, undoing: Undoing) -> bool:
    """Whether some of an undoing's names are missing ones, with or without their first part.

    Loading may add or remove that part, the base model's prefix.
    """
    if case.size < LARGE or not undoing.renames:
        return True
    near = case.near
    return any(name in near or name.partition(".")[2] in near for name in undoing.renames.values())
