"""Law 10 for faults of names and of files, and for checkpoints that look odd and are sound."""

import pytest
from support.examples import one_in
from support.fault_bench import FAMILIES, written
from support.faults.families import MORE
from support.faults.files import file_faults
from support.faults.healthy import odd
from support.faults.names import name_faults

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.findings import Severity

pytestmark = pytest.mark.oracle

EVERY = [*FAMILIES, *MORE]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    pytest.importorskip("transformers")
    return tmp_path_factory.mktemp("families")


def judged(fault):
    report = examine(fault.snapshot, Options(requested=fault.snapshot.model))
    alarms = {at for at, found in enumerate(report.findings) if found.severity is not Severity.INFO}
    assert alarms, fault.name
    assert [one.cause for one in report.diagnosis] == [fault.cause], fault.name
    assert set(report.diagnosis[0].findings) == alarms, fault.name


@pytest.mark.parametrize("name", one_in(2, EVERY))
def test_a_fault_of_names_has_its_one_cause(name, place):
    for fault in one_in(8, name_faults(name, written(name, place)), EVERY.index(name)):
        judged(fault)


@pytest.mark.parametrize("name", one_in(4, EVERY, 1))  # they differ little by family
def test_a_fault_of_files_has_its_one_cause(name, place):
    written(name, place)
    for fault in one_in(2, file_faults(name, place), EVERY.index(name) // 4):
        judged(fault)


@pytest.mark.parametrize("name", one_in(2, EVERY))
def test_what_looks_odd_and_is_sound_has_no_diagnosis(name, place):
    for how, snapshot in odd(name, written(name, place), place):
        report = examine(snapshot, Options(requested=name))
        assert (how, report.verdict, report.diagnosis) == (how, "clean", ())
