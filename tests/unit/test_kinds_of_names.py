"""Names by kind: what is asked once for each kind is what asking each name would give."""

import json

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.changes import with_names
from support.small_snapshots import snapshot_of

from auditor.checkpoint.snapshot import TextFile
from auditor.names import kinds
from auditor.names.kinds import answers_by_kind, kinds_of, members, numbers
from auditor.tensor_roles import role_of, roles_of

PARTS = ["0", "3", "03", "17", "1234567", "layers", "block", "experts", "layer", "w1", "a", "", "*"]
NAMES = st.lists(st.lists(st.sampled_from(PARTS), min_size=1, max_size=7).map(".".join), max_size=9)
ROLES = st.lists(
    st.tuples(
        st.sampled_from(["model.layers", "encoder.block", "blk", "layers_4", "encoderblock_1"]),
        st.integers(0, 12),
        st.sampled_from(
            [
                "self_attn.q_proj.weight",
                "attention.wq.weight",
                "layer.0.SelfAttention.q.weight",
                "layer.0.layer_norm.weight",
                "layer.1.layer_norm.weight",
                "mlp.experts.3.gate_proj.weight",
                "mlp.experts.11.gate_proj.weight",
                "feed_forward.experts.2.w1.weight",
                "nothing.5.known",
            ]
        ),
    ).map(lambda parts: ".".join(map(str, parts))),
    max_size=12,
)


@given(NAMES)
def test_each_name_is_in_one_kind_which_is_filled_with_its_numbers(names):
    kinds = kinds_of(names)
    assert sorted(name for kind in kinds for name in kind.names) == sorted(names)
    assert len({kind.pattern for kind in kinds}) == len(kinds)
    for kind in kinds:
        assert [kind.filled(found) for found in kind.numbers] == kind.names


@given(NAMES.map(lambda names: [name for name in names if "1234567" not in name]))
def test_the_numbers_of_lists_are_those_in_each_name(names):
    for depth in range(2):
        found: dict[str, set[int]] = {}
        for name in names:
            for inside in list(members(name))[depth : depth + 1]:
                found.setdefault(inside.before, set()).add(inside.number)
        assert numbers(kinds_of(names), depth) == found


@given(ROLES)
def test_the_roles_of_a_kind_are_those_of_its_names(names):
    found = {
        name: role._replace(numbers=of)
        for kind in kinds_of(names)
        for role, several in roles_of(kind).items()
        for of, name in several
    }
    assert found == {name: role for name in names if (role := role_of(name))}


def test_an_index_has_its_metadata_as_well_as_its_names(subtests):
    for total in ["12", "NaN"]:
        with subtests.test(total=total):
            text = (
                f'{{"metadata": {{"total_size": {total}}}, "weight_map": {{"a": "x", "b": "y"}}}}'
            )
            index = TextFile(name="model.safetensors.index.json", content=text.encode())
            changed = with_names(replace(snapshot_of([]), index=index), {"a": "c"})
            said = json.loads(changed.index.content)
            assert str(said["metadata"]) == str(json.loads(text)["metadata"])
            assert said["weight_map"] == {"c": "x", "b": "y"}


def test_names_that_all_differ_are_not_sorted_into_kinds_for_ever(monkeypatch):
    monkeypatch.setattr(kinds, "MOST_KINDS", 3)
    names = [f"{letter}.{at}" for letter in "abcdef" for at in range(2)]
    assert [kind.pattern for kind in kinds_of(names)] == ["a.0", "b.0", "c.0", "d.0"]


@given(NAMES)
def test_of_a_large_kind_with_one_answer_few_names_are_asked(names):
    experts = [f"layers.{at // 100}.experts.{at}.w" for at in range(400)]
    asked = []

    def ask(some):
        asked.extend(some)
        return [len(one.split(".")) for one in some]

    every = [*experts, *names]
    assert answers_by_kind(every, ask) == [len(one.split(".")) for one in every]
    assert len(asked) < 100 + len(names)


def test_a_name_of_a_large_kind_may_have_an_answer_of_its_own(subtests):
    for odd in [0, 25, 399]:
        with subtests.test(odd=odd):
            experts = [f"layers.{at // 100}.experts.{at}.w" for at in range(400)]
            is_odd = experts[odd].__eq__
            found = answers_by_kind(experts, lambda some, is_odd=is_odd: [*map(is_odd, some)])
            assert found == [*map(is_odd, experts)]
