"""The check of selections against the nights before: any sets of models, any kind."""

import json

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.nightly_stores import VERSIONS

from auditor.errors import UsageError
from auditor.sweep.runner import require_no_losses
from auditor.sweep.settings import ModelSelection
from auditor.sweep.store.ledger import StoreWriter
from auditor.sweep.store.reading import SelectedModel

MODELS = [f"o/m{number:02}" for number in range(24)]
SETS = st.sets(st.sampled_from(MODELS), min_size=1)
KINDS = st.sampled_from(["author", "list", "top"])


def selection(kind, models):
    if kind == "list":
        return ModelSelection(ids=tuple(sorted(models)))
    return ModelSelection(author="o", **({"top": 30} if kind == "top" else {}))


def planned(ledger, name, *selections):
    """A night with the models of each (kind, models); return it and its described selections."""
    tables = [selection(*one).described for one in selections]
    night = ledger.begin(name, json.dumps(tables, sort_keys=True), VERSIONS)
    plan = ledger.new_plan(name)
    for place, (_, models) in enumerate(selections):
        found = [SelectedModel(model, "a" * 40, model) for model in sorted(models)]
        ledger.add(night, plan, found, selection=place)
    return ledger.freeze(name, plan), tables


def finished(ledger, name, *selections):
    night, _ = planned(ledger, name, *selections)
    ledger.finish(night)
    return ledger.night(name)


def refusal(path, before, tonight):
    with StoreWriter.open(path) as ledger:
        earlier = [finished(ledger, f"n{at}", *one) for at, one in enumerate(before)]
        night, tables = planned(ledger, "tonight", *tonight)
        try:
            require_no_losses(ledger, night.plan, tables, earlier)
        except UsageError as error:
            return str(error)
    return None


@examples(60)
@given(kind=KINDS, before=SETS, tonight=SETS)
def test_a_selection_may_lose_one_model_in_ten(kind, before, tonight, tmp_path_factory):
    path = tmp_path_factory.mktemp("store") / "s.sqlite"
    said = refusal(path, [[(kind, before)]], [(kind, tonight)])
    lost = before - tonight
    gone = len(lost) if kind == "author" else len(before) - len(tonight)
    is_another_list = kind == "list" and len(tonight - before) > len(tonight & before)
    assert (said is not None) == (gone * 10 > len(before) and not is_another_list)
    if said:
        assert f" {len(tonight)} model" in said
        assert f"had {len(before)} in the night 'n0'" in said
        assert repr(min(lost)) in said


def test_each_selection_is_compared_with_itself(tmp_path):
    many, few = set(MODELS[:20]), set(MODELS[20:])
    before = [[("author", many), ("list", few)]]
    tonight = [("list", {MODELS[20]}), ("author", many)]
    said = refusal(tmp_path / "a.sqlite", before, tonight)
    assert said.startswith("the selection 'ids 1 ids, ")
    assert "'o/m21', 'o/m22', 'o/m23'" in said
    assert refusal(tmp_path / "b.sqlite", before, [("list", few), ("author", many)]) is None


def test_two_lists_of_a_night_are_told_apart_by_their_models(tmp_path):
    first, second = set(MODELS[:10]), set(MODELS[10:])
    before = [[("list", first), ("list", second)]]
    assert refusal(tmp_path / "a.sqlite", before, [("list", second), ("list", first)]) is None
    cut = set(MODELS[10:14])
    said = refusal(tmp_path / "b.sqlite", before, [("list", first), ("list", cut)])
    assert said.startswith("the selection 'ids 4 ids, ")


def test_a_night_of_another_selection_between_hides_no_loss(tmp_path):
    before = [[("author", set(MODELS))], [("list", {"b/x"})], [("top", {"b/x"})]]
    assert refusal(tmp_path / "s.sqlite", before, [("author", {MODELS[0]})])
    assert not refusal(tmp_path / "t.sqlite", before, [("list", {"b/y"})])


def test_a_renamed_model_is_not_lost_by_its_list(tmp_path):
    with StoreWriter.open(tmp_path / "s.sqlite") as ledger:
        before = finished(ledger, "n1", ("list", {"o/old"}))
        night, tables = planned(ledger, "n2", ("list", {"o/old"}))
        plan = ledger.new_plan("n2")
        ledger.add(night, plan, [SelectedModel("o/new", "a" * 40, "o/old")])
        require_no_losses(ledger, plan, tables, [before])
