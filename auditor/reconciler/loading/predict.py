"""The load report of from_pretrained, predicted from the reconciled tensors."""

from collections.abc import Iterable, Mapping

from auditor.analytic import Expectation
from auditor.analytic.config_classes import fault_sentence
from auditor.findings import BadHeader, BadIndex, BadSize, Finding, Unsafe, is_of_tensors
from auditor.reconciler.contents import Contents
from auditor.reconciler.loading.report import LoadReport, Predicted
from auditor.reconciler.matching import Fate, places
from auditor.reconciler.reconcile import Reconciled, is_remnant
from auditor.tensors import StoredTensor

# The most unexpected tensors with a load report: 95,000 take two seconds and 60 MB, for a list that
# nobody reads.
_MOST_UNEXPECTED = 20_000


def predict(
    contents: Contents,
    expectation: Expectation,
    reconciled: Reconciled,
    findings: Iterable[Finding],
    packed: str | None,
) -> Predicted:
    """Predict the load report of from_pretrained.

    There is no report if `packed`, the method of packed weights, is given: the report depends
    on the loader of that method.
    """
    if not expectation.loading.reports:
        return Predicted()
    if (reason := _why_unpredicted(contents, reconciled, packed)) is not None:
        return Predicted(unchecked=(f"the load report: {reason}",))
    in_memory = _in_memory(contents.tensors, expectation, findings)
    if expectation.faults:  # loading then raises before it looks up a name
        reason = fault_sentence(expectation.faults[0], expectation.target)
        return Predicted(LoadReport(raises=reason), in_memory)
    if (reasons := _reasons_without_report(contents)) is not None:
        return Predicted(in_memory=in_memory, unchecked=reasons)
    return _loaded(contents, expectation, reconciled)._replace(in_memory=in_memory)


def _why_unpredicted(contents: Contents, reconciled: Reconciled, packed: str | None) -> str | None:
    """Return why a load is not predicted: its layout, or a report too long to read."""
    if packed is not None:
        return f"it depends on the software that loads this layout ({packed})"
    if is_remnant(len(reconciled.absent), len(contents.tensors)):
        return "next to nothing of the model is stored"
    if len(reconciled.unexpected) > _MOST_UNEXPECTED:
        return f"more than {_MOST_UNEXPECTED:,} stored tensors are unexpected"
    return None


def _loaded(contents: Contents, expectation: Expectation, reconciled: Reconciled) -> Predicted:
    """Predict the report by loading the stored tensors name by name."""
    if _as_expected(expectation, reconciled):
        return Predicted(LoadReport())
    from auditor.analytic.conversions import UnknownOperationError  # noqa: PLC0415 - few need it
    from auditor.reconciler.loading.from_pretrained import (  # noqa: PLC0415 - likewise
        load_report,
    )

    try:
        return Predicted(load_report(expectation, _shapes(contents.tensors)))
    except UnknownOperationError as error:
        reason = f"the load report: it takes the conversion {error}, which is not known here"
        return Predicted(unchecked=(reason,))


def _reasons_without_report(contents: Contents) -> tuple[str, ...] | None:
    """Return why there is no load report, () if findings explain it; None if there is a report."""
    refusing = {BadHeader.kind, BadIndex.kind, BadSize.kind, Unsafe.kind}
    refused = any(finding.kind in refusing for finding in contents.findings)
    if contents.names_only or contents.unread or refused:
        return ()
    if contents.index is None and len(contents.opened) > 1:
        return ("the load report: transformers finds several files by an index, and none is here",)
    return None


def _as_expected(expectation: Expectation, reconciled: Reconciled) -> bool:
    """Whether each tensor is stored once in its shape, and nothing else: the report is empty.

    This avoids a second look at ninety thousand tensors that are as expected. For a closed form,
    the tensors that save_pretrained writes load with an empty report.
    """
    ties = Fate.TIED.value
    return (
        expectation.by == "closed-form"
        and not expectation.loading.optional_buffers
        and not reconciled.unexpected
        and not reconciled.copies
        and all(item.fate == ties for item in reconciled.absent)
        and all(
            hit.stored.shape == hit.expected.shape and not hit.expected.role.optional
            for hit in reconciled.answered
        )
    )


def _shapes(tensors: Iterable[StoredTensor]) -> Mapping[str, tuple[int, ...]]:
    """Return the shape of each name; a name in two files has the shape in the last file."""
    in_order = sorted(tensors, key=lambda tensor: tensor.file)
    return {tensor.name: tensor.shape for tensor in in_order if tensor.shape is not None}


def _in_memory(
    tensors: Iterable[StoredTensor], expectation: Expectation, findings: Iterable[Finding]
) -> Mapping[str, tuple[str, ...]]:
    """Map each name in a finding about tensors to the names in memory that it is loaded under."""
    of_tensors = [finding for finding in findings if is_of_tensors(finding)]
    names = {name for finding in of_tensors for name in finding.names}
    if not names:
        return {}
    where = places(expectation, (tensor.name for tensor in tensors))
    name_places = where.of(names)
    loaded = set(expectation.loaded_of(one.expected for one in name_places if one.expected))
    loaded_names = {
        name: place.name
        for name, place in zip(names, name_places, strict=True)
        if place.expected in loaded
    }
    others = names - loaded_names.keys()
    converted = where.loading.converted(loaded_names.values())
    reported = where.loading.reported(others)
    loaded_and_others = zip((*loaded_names, *others), (*converted, *reported), strict=True)
    return dict(loaded_and_others)
