"""other-class: another class of the same model type fits exactly.

To do: Declare in `architectures` the class that was saved, or save the class that is declared.
"""

from collections.abc import Collection, Iterator

from auditor.diagnosis.case import Case, Undoing
from auditor.diagnosis.changes import with_values
from auditor.diagnosis.solving.outline import follow
from auditor.diagnosis.solving.trials import Trials
from auditor.errors import CheckpointError
from auditor.report import Report, Unaudited

CAUSE = "other-class"
_MOST = 12  # classes that are audited for


def undoings(case: Case) -> Iterator[Undoing]:
    """Yield every other class of the model type that fits, unless the user chose a class."""
    report = case.report
    if case.target is not None or report.model_type is None or report.target is None:
        return
    if case.is_strange or not (case.missing or case.unexpected):
        return
    others = other_classes(case)
    for name in others[:_MOST]:
        more = f" (or a {' or a '.join(others[1:3])})" if name == others[0] and others[1:] else ""
        yield Undoing(
            cause=CAUSE,
            snapshot=with_values(case.snapshot, {"architectures": [name]}),
            fields=(("architectures", list(report.declared), [name]),),
            summary=f"the files hold a {name}{more}, and the config {_declaration(report)}",
            fix=f'set architectures to ["{name}"] in config.json, or save the {report.target}',
            evidence=(f"every tensor is one of {name}, and none lacks",),
            exact=True,
        )


def _declaration(report: Report | Unaudited) -> str:
    if report.declared:
        return f"declares {report.target}"
    return f"names no architectures, which stands for {report.target}"


def other_classes(case: Case) -> list[str]:
    """Return the other classes of the type that fit; all of them if there is no closed form."""
    classes = case.classes(case.report.model_type or "")
    names = [name for name in classes if name != case.report.target]
    if case.report.expected is None or case.report.expected.by != "closed-form":
        return names
    return _fitting(case, names)


def holds_another_head(case: Case) -> bool:
    """Whether another class fits with a head that the target leaves unused."""
    unused = any(finding.kind == "unused" for finding in case.report.findings)
    return unused and case.target is None and bool(other_classes(case))


def _fitting(case: Case, names: Collection[str]) -> list[str]:
    """Return the classes that expect exactly the stored tensors, compared by one of each kind.

    Classes whose names match with the stored prefix, or lack of it, come first.
    """
    trials = Trials(case.holdings, None)
    ranked: list[tuple[int, int, str]] = []
    for place, name in enumerate(names):
        try:
            expected = case.tree(case.snapshot, target=name)
        except CheckpointError:
            continue
        if expected is not None and not trials.compare(expected).differ:
            steps = (follow(expected.tree, kind.first) for kind in case.holdings.kinds)
            as_spelt = sum(step.shape is not None for step in steps)
            ranked.append((-as_spelt, place, name))
    return [name for *_, name in sorted(ranked)]
