"""The rows of recorded schemes say of each declaration what the engine answered."""

import pytest

pytest.importorskip("torch")

from typing import Any

from engines.schemes import Answer, Table, _merged, _steps, declared
from hypothesis import given
from hypothesis import strategies as st

_TABLE = Table("gptq", {"bits": (2, 3, 4), "sym": (True, False), "group_size": (32, 64)})


@given(outcomes=st.lists(st.sampled_from(["A", False, None]), min_size=12, max_size=12))
def test_each_declaration_is_in_one_row_with_its_own_outcome(outcomes: list[Any]) -> None:
    answers = [
        Answer(_TABLE, values, (), ((0, outcome),))
        for values, outcome in zip(_TABLE.combinations(), outcomes, strict=True)
    ]
    rows = _merged(answers)
    for one in answers:
        found = [row for row in rows if all(v in row["values"][k] for k, v in one.values.items())]
        assert [row["by"] for row in found] == [one.by]


def test_a_step_is_a_capability_from_which_the_outcome_differs(subtests):
    for by, steps, raises in [
        ({"0": {"scheme": "A"}, "70": {"raises": "x"}, "75": {"scheme": "A"}}, 3, ""),
        ({"0": {"scheme": "A"}, "70": {"scheme": "A"}, "75": {"scheme": "A"}}, 2, ""),
        ({"0": {"raises": "x"}, "70": {"raises": "y"}}, 2, "x"),
        ({"0": {"raises": "x"}, "70": {}}, 2, ""),
    ]:
        with subtests.test(by=by, steps=steps, raises=raises):
            found, error = _steps(by)
            assert (len(found), error) == (steps, raises)


def test_a_group_of_compressed_tensors_is_declared_as_its_packer_writes_it() -> None:
    values = {"format": "pack-quantized", "weights": True, "weights.num_bits": 4, "weights.x": None}
    group = declared(Table("compressed-tensors", {}), values)["config_groups"]["group_0"]
    assert group == {"targets": ["Linear"], "input_activations": None, "weights": {"num_bits": 4}}
