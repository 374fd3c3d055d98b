"""Law 10 for configs, classes and packings: the planted cause is named, alone, with its fields.

The stored side is what transformers writes; the expected fields are those that were planted.
"""

import pytest
import support.fault_bench as bench
from support.examples import one_in
from support.faults_of_config import (
    FAMILIES,
    LOST_PARTS,
    OTHER_CLASSES,
    OTHER_TYPES,
    PACKED,
    faults,
    faults_of_class,
    faults_of_packing,
    healthy_packed,
    larger_config,
)

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.downloader import local_folder
from auditor.findings import Severity

pytestmark = pytest.mark.oracle

EVERY = {**bench.FAMILIES, **FAMILIES}
# Half of the families that fault_bench has, whose numbers it plants itself, and all of our own.
SWEPT = [*list(bench.FAMILIES)[::2], *FAMILIES]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("families")


def written(name, place, values=None):
    transformers = pytest.importorskip("transformers")
    folder = place / f"{name}-{len(values or ())}"
    if not folder.exists():
        kind = getattr(transformers, name)
        kind(kind.config_class(**(values or EVERY[name]))).save_pretrained(folder)
    return local_folder.read(folder, name)


def examined(snapshot):
    return examine(snapshot, Options(requested=snapshot.model))


def assert_named(fault):
    report = examined(fault.snapshot)
    if report.verdict == "clean":  # shapes that two values of a key have, or drafting layers
        return False
    [found] = report.diagnosis or [None]
    assert found is not None, fault.name
    assert (found.cause, fault.is_read([found])) == (fault.cause, True), (fault.name, found.summary)
    alarms = {at for at, one in enumerate(report.findings) if one.severity is not Severity.INFO}
    assert set(found.findings) == alarms, fault.name
    return True


@pytest.mark.parametrize("name", one_in(2, FAMILIES))
def test_what_transformers_writes_has_no_diagnosis(name, place):
    report = examined(written(name, place))
    assert (report.verdict, report.diagnosis) == ("clean", ())


@pytest.mark.parametrize("name", one_in(3, SWEPT))
def test_every_shaping_key_is_solved_for(name, place):
    planted = one_in(4, faults(name, written(name, place)), SWEPT.index(name))
    flagged = [assert_named(fault) for fault in planted]
    assert sum(flagged) >= max(2, 0.8 * len(flagged))


@pytest.mark.parametrize("name", one_in(3, sorted({*OTHER_CLASSES, *OTHER_TYPES, *LOST_PARTS}), 1))
def test_a_class_a_type_or_a_part_is_named(name, place):
    assert all(map(assert_named, one_in(2, faults_of_class(name, written(name, place)))))


def test_packed_weights_that_the_config_declares_have_no_diagnosis(place):
    for sound in healthy_packed(written(PACKED, place, larger_config())):
        report = examined(sound)
        assert (report.verdict, report.diagnosis) == ("clean", ()), sound.config.content


def test_wrong_settings_of_packed_weights_are_solved_from_their_shapes(place):
    plain = written(PACKED, place, larger_config())
    assert all(assert_named(fault) for fault in faults_of_packing(plain))
