"""A kind of finding is one class: what it lacks is noticed here, by mypy or by the schema."""

import pytest

from auditor.findings import FINDING_KINDS, FindingKind

# Each of them changes what JSON has of a finding.
WRITTEN = {"evidence", "count"}


def classes_below(kind):
    for each in kind.__subclasses__():
        yield each
        yield from classes_below(each)


def test_a_class_that_no_other_class_extends_is_a_kind():
    leaves = {each for each in classes_below(FindingKind) if not each.__subclasses__()}
    assert leaves - set(FINDING_KINDS) == set()


@pytest.mark.parametrize("kind", FINDING_KINDS, ids=lambda kind: kind.__name__)
def test_a_kind_with_fields_of_its_own_writes_them(kind):
    fields = {*kind.__struct_fields__} - {*kind.__base__.__struct_fields__}
    assert not fields or WRITTEN & {*vars(kind)}, f"{kind.__name__} does not write {fields}"
