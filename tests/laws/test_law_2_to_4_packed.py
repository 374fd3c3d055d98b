"""Laws 2 to 4 where some of the stored tensors are packed, alone or several in one."""

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from support.checkpoints import Spoilt, expect, siblings, spoilt, stored

from auditor.layouts.packing import PLAIN, LogicalTensor, Notes, ReadAndHidden, Unpacked
from auditor.reconciler.contents import Contents
from auditor.reconciler.reconcile import FamilyExpectations, Reconciled, reconcile
from auditor.walker import walk


@dataclass(frozen=True, kw_only=True)
class Packed:
    """A spoilt checkpoint, and the same with some tensors packed."""

    case: Spoilt
    tensors: tuple
    unpacked: Unpacked


def _module(name: str) -> str:
    """The outermost module of a tensor: no format packs tensors of two of them in one."""
    return name.partition(".")[0]


@st.composite
def packed(draw) -> Packed:
    case = draw(spoilt())
    tensors, pieces, scales = [], [], []
    for at, tensor in enumerate(case.tensors):
        how = draw(st.sampled_from(("plain", "alone", "joined")))
        if how == "plain" or tensor.dtype != "F32":
            tensors.append(tensor)
            continue
        if how == "alone" or not pieces or _module(pieces[-1].name) != _module(tensor.name):
            held = stored(f"{tensor.name}.packed", (at + 1, 2), dtype="I32", file=tensor.file)
            scale = stored(f"{tensor.name}.scales", (at + 1,), file=tensor.file)
            tensors += [held, scale]
            scales.append(scale)
        else:
            held = pieces[-1].stored
        pieces.append(LogicalTensor(held, tensor.name, tensor.shape, "INT4"))
    notes = (Notes(tuple(scales), "scales"),) if scales else ()
    unpacked = Unpacked(layout="test", pieces=tuple(pieces), quantization_data=notes)
    return Packed(case=case, tensors=tuple(tensors), unpacked=unpacked if pieces else PLAIN)


def _reconciled(case: Spoilt, tensors, unpacked: Unpacked) -> Reconciled:
    family = FamilyExpectations(
        declared=expect(case.declared, **case.changes), siblings=lambda: siblings(**case.changes)
    )
    target = expect(case.target, **case.changes)
    return reconcile(Contents(tensors=tensors), target, family, ReadAndHidden(unpacked, {}))


@given(packed())
def test_every_packed_tensor_and_its_quantization_data_is_counted_exactly_once(it: Packed) -> None:
    result = _reconciled(it.case, it.tensors, it.unpacked)
    counted = Counter(tensor for tensor, _, _ in result.counted)
    assert counted == Counter(it.tensors)


@given(packed())
def test_findings_explain_the_whole_difference_of_a_packed_checkpoint(it: Packed) -> None:
    result = _reconciled(it.case, it.tensors, it.unpacked)
    parameters = walk(result.counted).total.parameters
    expected = expect(it.case.target, **it.case.changes).parameters
    assert parameters - expected == sum(finding.explains for finding in result.findings)


@given(packed())
def test_packing_changes_neither_the_parameters_nor_what_is_missing(it: Packed) -> None:
    plain = _reconciled(it.case, it.case.tensors, PLAIN)
    result = _reconciled(it.case, it.tensors, it.unpacked)
    assert walk(result.counted).total.parameters == walk(plain.counted).total.parameters
    assert Counter(result.absent) == Counter(plain.absent)


@given(packed(), st.randoms(use_true_random=False))
def test_the_order_of_packed_tensors_and_pieces_changes_nothing(it: Packed, random) -> None:
    tensors, pieces = list(it.tensors), list(it.unpacked.tensors)
    random.shuffle(tensors)
    random.shuffle(pieces)
    shuffled = Unpacked(
        layout="test", pieces=tuple(pieces), quantization_data=it.unpacked.quantization_data
    )
    one = _reconciled(it.case, it.tensors, it.unpacked)
    two = _reconciled(it.case, tensors, shuffled if pieces else PLAIN)
    assert set(one.findings) == set(two.findings)
    assert Counter(one.counted) == Counter(two.counted)
