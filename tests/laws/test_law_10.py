"""Law 10: what an explanation claims goes away when it is undone, and nothing else appears.

A healthy checkpoint has no explanation.
"""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.changes import with_names, with_values
from support.checkpoints import expect, stored_by
from support.examples import examples, one_in
from support.fault_bench import FAMILIES, faults, written
from support.fault_pairs import PLANTS, pairs

from auditor.audit.model import examine_model, examine_undiagnosed
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.change import UNCHANGED, composed
from auditor.checkpoint.snapshot import Snapshot, Source, TextFile, WeightHeader
from auditor.containers.weight_formats import Table
from auditor.diagnosis.case import alarm_keys
from auditor.findings import Severity


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("families")


def examined(snapshot, **options):
    return examine(snapshot, Options(requested=snapshot.model, **options))


@pytest.mark.oracle
@pytest.mark.parametrize("name", one_in(2, FAMILIES))
def test_what_transformers_writes_has_no_diagnosis(name, place):
    pytest.importorskip("transformers")
    report = examined(written(name, place))
    assert (report.verdict, report.diagnosis) == ("clean", ())


@pytest.mark.oracle
@pytest.mark.parametrize("name", one_in(2, FAMILIES))
def test_a_single_fault_has_its_one_cause(name, place):
    pytest.importorskip("transformers")
    for fault in one_in(2, faults(name, written(name, place)), list(FAMILIES).index(name) // 2):
        report = examined(fault.snapshot)
        if report.verdict == "clean":  # a length that no shape follows from
            assert "max_position_embeddings" in fault.fields, fault.name
            continue
        [found] = report.diagnosis
        is_read = not (found.fields or found.alternatives) or fault.is_read([found])
        assert (found.cause, is_read) == (fault.cause, True), (fault.name, found.summary)
        alarms = {
            at
            for at, finding in enumerate(report.findings)
            if finding.severity is not Severity.INFO
        }
        assert set(found.findings) == alarms, fault.name


@pytest.mark.oracle
def test_two_faults_at_once_are_both_named(place):
    pytest.importorskip("transformers")
    planted = one_in(12, pairs(place))
    unnamed = [
        pair.name for pair in planted if not pair.is_named(examined(pair.snapshot).diagnosis)
    ]
    assert len(unnamed) <= len(planted) // 10, unnamed


# Without the library: a tiny BERT, as its closed form has it.


def tiny(**values) -> Snapshot:
    tensors = tuple(sorted(stored_by(expect("BertForMaskedLM"))))
    head = WeightHeader(
        name="model.safetensors", size=None, known=Table(file="model.safetensors", tensors=tensors)
    )
    config = TextFile(name="config.json", content=_config())
    made = Snapshot(
        model="tiny",
        commit=None,
        source=Source.FOLDER,
        origin="",
        files=(),
        config=config,
        headers=(head,),
    )
    return with_values(made, values)


def _config() -> bytes:
    from support.checkpoints import TINY  # noqa: PLC0415 - beside its use

    return json.dumps({**TINY, "architectures": ["BertForMaskedLM"], "dtype": "float32"}).encode()


def test_a_field_that_is_off_is_solved_for_and_explains_all():
    [found] = examined(tiny(num_hidden_layers=4)).diagnosis
    assert found.cause == "config-field"
    assert found.fields == (("num_hidden_layers", 4, 2),)
    assert found.summary == "num_hidden_layers is 4, the files hold 2"
    assert found.explains == "all 32 names"


def test_another_class_of_the_type_is_named_where_it_fits_exactly():
    [found] = examined(tiny(architectures=["BertForSequenceClassification"])).diagnosis
    assert found.cause == "other-class"
    assert found.fields[0][2] == ["BertForMaskedLM"]


def test_two_faults_have_two_causes():
    names = [tensor.name for tensor in stored_by(expect("BertForMaskedLM"))]
    spoilt = with_names(tiny(num_hidden_layers=3), {name: f"module.{name}" for name in names})
    assert [one.cause for one in examined(spoilt).diagnosis] == ["wrapper-prefix", "config-field"]


def test_where_nothing_closes_no_cause_is_guessed():
    names = [tensor.name for tensor in stored_by(expect("BertForMaskedLM"))]
    strange = with_names(tiny(), {name: f"x{at}" for at, name in enumerate(names)})
    report = examined(strange)
    assert (report.verdict, report.diagnosis) == ("findings", ())


@pytest.mark.parametrize("name", [".".join("1" * 20_000), "a" * 100_000, "1." * 60])
def test_names_that_no_model_has_are_not_split(name):
    names = [tensor.name for tensor in stored_by(expect("BertForMaskedLM"))]
    report = examined(with_names(tiny(), {names[0]: name}))
    assert (report.verdict, report.diagnosis) == ("findings", ())


def test_what_the_user_leaves_out_needs_no_cause():
    assert examined(tiny()).diagnosis == ()


def alarms_of(report, renames=UNCHANGED):
    """The keys of each alarming finding, by its place."""
    return {
        at: set(alarm_keys(finding, renames))
        for at, finding in enumerate(report.findings)
        if finding.severity is not Severity.INFO
    }


@examples(60)
@given(st.lists(st.sampled_from(sorted(PLANTS)), min_size=1, max_size=3, unique=True))
def test_what_is_claimed_goes_away_and_nothing_else_appears(planted):
    spoilt = tiny()
    for fault in planted:
        spoilt = PLANTS[fault][0](spoilt) or spoilt
    report = examine_model(spoilt, Options(requested="tiny"))
    changes = [one.change for one in report.diagnosis if one.change is not None]
    if not changes:
        return
    renames, mended = UNCHANGED, spoilt
    for change in changes:
        renames, mended = composed(renames, change.new_names), change.applied_to(mended)
    after = examine_undiagnosed(mended, Options(requested="tiny"))
    before, left = alarms_of(report, renames), set().union(*alarms_of(after).values())
    claimed = {at for one in report.diagnosis for at in one.findings}
    assert all(keys - left for at, keys in before.items() if at in claimed)
    assert all(keys <= left for at, keys in before.items() if at not in claimed)
    known = {name for keys in before.values() for _, name in keys}
    assert {name for _, name in left} <= known
