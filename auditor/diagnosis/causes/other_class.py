"""other-class: another class of the same model type fits exactly.

To do: Declare in `architectures` the class that was saved, or save the class that is declared.
"""

from collections.abc import Iterator

from auditor.diagnosis.case import Case, Undoing

CAUSE = "other-class"


def undoings(case: Case) -> Iterator[Undoing]:
    """Every other class of the type, unless the user asked for one."""
    report = case.report
    if case.target is not None or report.model_type is None or report.target is None:
        return
    if not (case.missing or case.unexpected):
        return
    for name in case.classes(report.model_type):
        if name == report.target:
            continue
        yield Undoing(
            cause=CAUSE,
            snapshot=case.snapshot,
            target=name,
            fields=(("architectures", list(report.declared), [name]),),
            summary=f"the files hold a {name}, and the config declares {report.target}",
            fix=f'set architectures to ["{name}"] in config.json, or save the {report.target}',
            evidence=(f"every tensor is one of {name}, and none lacks",),
            exact=True,
        )
