"""A fix does what its plan says: what was audited in memory is what is written, and it is clean."""

import pytest
from support.examples import one_in
from support.fault_bench import FAMILIES, faults, stored, written
from support.stopped_fixes import WAYS, Stopping

from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.diagnosis.permissions import Allow
from auditor.findings import Severity
from auditor.fixing.plan import plan_fix

# Causes that are no more than names, the config or an index.
FIXABLE = {
    "config-field",
    "dtype-doubled",
    "head-not-saved",
    "layers-renumbered",
    "other-class",
    "quantization-not-applied",
    "wrapper-prefix",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("families")


@pytest.mark.oracle
@pytest.mark.parametrize("name", one_in(4, FAMILIES))  # plans follow the fault
def test_every_fault_of_names_and_config_has_a_plan_that_ends_clean(name, place):
    pytest.importorskip("transformers")
    sound = written(name, place)
    weights = {one.file: one.span for head in sound.headers for one in head.parsed.tensors}
    assert plan_fix(sound, Options(requested=name)).changes == ()
    mended = 0
    for fault in stored(faults(name, sound)):
        options = Options(requested=name)
        plan = plan_fix(fault.snapshot, options, allowed=tuple(Allow))
        after = examine(plan.planned, options)
        assert (after.verdict, after.findings) == (plan.after.verdict, plan.after.findings)
        causes = {one.cause for one in plan.before.diagnosis}
        if plan.before.verdict == "clean":  # a size that shapes nothing
            assert plan.changes == ()
        elif not plan.changes and plan.planned is fault.snapshot:
            assert plan.left, fault.name
            are_open = any(one.alternatives for one in plan.before.diagnosis)
            assert len(fault.fields) > 1 or are_open, fault.name
        elif causes == {fault.cause} <= FIXABLE and _explains_all(plan.before):
            mended += 1
            assert (after.verdict, plan.left) == ("clean", ()), fault.name
        placed = {
            one.file: one.span for head in plan.planned.headers for one in head.parsed.tensors
        }
        assert placed.keys() == weights.keys()
    assert mended


def _explains_all(report):
    alarms = {at for at, one in enumerate(report.findings) if one.severity is not Severity.INFO}
    claimed = {at for one in report.diagnosis for at in one.findings}
    return alarms == claimed and all(one.explains.startswith("all ") for one in report.diagnosis)


@pytest.mark.slow
@pytest.mark.parametrize(("options", "number"), one_in(3, WAYS))
def test_stopped_anywhere_it_leaves_the_folder_and_no_half_of_a_new_one(options, number, tmp_path):
    """`make fuzz ARGS=stops` stops it at every point, this at some."""
    stopping = Stopping(tmp_path, *options, shards=2)
    assert stopping.every_point(number, first=2, step=7) > 1
