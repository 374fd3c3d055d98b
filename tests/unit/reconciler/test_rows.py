"""Rows of modules under the names that a file has."""

from support.checkpoints import expect, stored_by

from auditor.reconciler.contents import Contents
from auditor.reconciler.reconcile import FamilyExpectations, reconcile
from auditor.reconciler.rows import compared_rows
from auditor.walker import walk


def test_a_missing_module_has_the_prefix_of_the_stored_ones():
    bert = expect("BertModel")
    tensors = [
        one._replace(name=f"bert.{one.name}")
        for one in stored_by(bert)
        if not one.name.startswith("pooler.")
    ]
    family = FamilyExpectations(declared=bert, siblings=tuple)
    result = reconcile(Contents(tensors=tensors), bert, family)
    walked = walk(result.counted)
    rows = {row.prefix: row for row in compared_rows(result, bert, walked, depth=None, shapes=True)}
    pooler = rows["bert.pooler"]
    hidden = 4
    assert (pooler.status, pooler.parameters, pooler.expected) == ("missing", 0, hidden**2 + hidden)
    assert rows["bert"].expected == rows[""].expected == bert.parameters
    assert "pooler" not in rows
