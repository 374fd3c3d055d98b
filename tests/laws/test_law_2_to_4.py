"""Laws 2 to 4, over BERT checkpoints that are spoilt in every way at once."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from support.checkpoints import Spoilt, expect, siblings, spoilt, stored_by
from support.depths import depths, listed

from auditor.analytic import Expectation, Role
from auditor.reconciler.contents import Contents
from auditor.reconciler.reconcile import FamilyExpectations, Reconciled, reconcile
from auditor.reconciler.rows import compared_rows
from auditor.reconciler.tensor_rows import TensorTable
from auditor.tensors import Depth
from auditor.walker import walk


def _reconciled(case: Spoilt, tensors=None) -> Reconciled:
    return reconcile(
        Contents(tensors=case.tensors if tensors is None else tensors),
        expect(case.target, **case.changes),
        FamilyExpectations(
            declared=expect(case.declared, **case.changes),
            siblings=lambda: siblings(**case.changes),
        ),
    )


def _rows(result: Reconciled, expectation: Expectation, depth: Depth | None):
    walked = walk(result.counted, depth=depth)
    return compared_rows(result, expectation, walked, depth=depth, shapes=True)


@given(spoilt())
def test_every_stored_and_every_expected_tensor_is_accounted_for_exactly_once(case: Spoilt) -> None:
    result = _reconciled(case)
    counted = Counter((tensor.name, tensor.file) for tensor, _, _ in result.counted)
    assert counted == Counter((tensor.name, tensor.file) for tensor in case.tensors)
    fates = Counter([*result.plain, *(hit.expected.name for hit in result.answered)])
    fates.update(item.tensor.name for item in result.absent)
    expectation = expect(case.target, **case.changes)
    optional = {tensor.name for tensor in expectation.tensors if tensor.role.optional}
    tied = {tensor.name for tensor in expectation.tensors if tensor.role is Role.TIED}
    copies = {name for name in tied if name not in fates}  # stored beside their source
    names = {tensor.name for tensor in expectation.tensors}
    assert set(fates) | optional | copies == names
    assert set(fates.values()) <= {1}


@given(spoilt())
def test_findings_explain_the_whole_difference_between_stored_and_expected(case: Spoilt) -> None:
    result = _reconciled(case)
    stored = walk(result.counted).total.parameters
    expected = expect(case.target, **case.changes).parameters
    assert stored - expected == sum(finding.explains for finding in result.findings)


@given(spoilt(), st.randoms(use_true_random=False))
def test_the_order_of_files_shards_and_tensors_changes_nothing(case: Spoilt, random) -> None:
    shuffled = list(case.tensors)
    random.shuffle(shuffled)
    one, two = _reconciled(case), _reconciled(case, shuffled)
    assert set(one.findings) == set(two.findings)
    expectation = expect(case.target, **case.changes)
    assert _rows(one, expectation, None) == _rows(two, expectation, None)


@given(spoilt(), st.randoms(use_true_random=False))
def test_the_table_of_tensors_has_all_that_is_stored_or_absent_in_the_model_s_order(
    case: Spoilt, random
) -> None:
    result, expectation = _reconciled(case), expect(case.target, **case.changes)
    rows = list(TensorTable.compared(result, expectation).rows())
    stored = Counter((row.name, row.file) for row in rows if row.file is not None)
    assert stored == Counter((tensor.name, tensor.file) for tensor in case.tensors)
    absent = [row.name for row in rows if row.file is None]
    assert Counter(absent) == Counter(item.tensor.name for item in result.absent)
    assert sum(row.parameters for row in rows) == walk(result.counted).total.parameters
    order = {tensor.name: at for at, tensor in enumerate(expectation.tensors)}
    answers = {row.name for row in rows if row.expected_shape is not None}
    places = [order.get(row.expected_name or row.name) for row in rows if row.name in answers]
    known = [place for place in places if place is not None]
    assert known == sorted(known)
    shuffled = list(case.tensors)
    random.shuffle(shuffled)
    again = TensorTable.compared(_reconciled(case, shuffled), expectation)
    assert list(again.rows()) == rows


@given(spoilt(), depths())
def test_rows_of_any_depth_are_the_full_rows_cut_off_there(case: Spoilt, depth: Depth) -> None:
    result, expectation = _reconciled(case), expect(case.target, **case.changes)
    full = _rows(result, expectation, None)
    cut = _rows(result, expectation, depth)
    assert cut == tuple(row for row in full if listed(depth, row.prefix))


@given(spoilt())
def test_each_row_is_the_sum_of_its_children_and_of_its_own_tensors(case: Spoilt) -> None:
    result, expectation = _reconciled(case), expect(case.target, **case.changes)
    rows = {row.prefix: row for row in _rows(result, expectation, None)}
    own = Counter(tensor.name.rpartition(".")[0] for tensor, _, _ in result.counted)
    for prefix, row in rows.items():
        children = [
            child for name, child in rows.items() if name and name.rpartition(".")[0] == prefix
        ]
        assert row.tensors == own[prefix] + sum(child.tensors for child in children)


@given(spoilt())
def test_a_checkpoint_audited_for_the_class_that_wrote_it_is_clean_until_it_is_spoilt(case) -> None:
    whole = expect(case.declared, **case.changes)
    result = reconcile(
        Contents(tensors=stored_by(whole)),
        whole,
        FamilyExpectations(declared=whole, siblings=tuple),
    )
    assert {finding.kind for finding in result.findings} <= {"tied"}
