"""A sweep of one model ends as `audit` of that model does."""

import inspect

import pytest
from msgspec.structs import replace
from support.nightly_stores import VERSIONS
from support.outcomes.every_kind import every_kind
from support.outcomes.examples import EXAMPLES, pipeline
from support.outcomes.making import expected, stored

from auditor.cli import console, sweep
from auditor.cli.app import COMMANDS, function_of
from auditor.errors import Reason
from auditor.findings import BadIndex, Missing, StoredBuffer, Unexpected, WrongTotal
from auditor.report import Report, Unaudited
from auditor.sweep.one_model import recorded
from auditor.sweep.store.ledger import StoreWriter
from auditor.sweep.store.reading import SelectedModel

ERROR = Missing(tensors=(expected("a", 2),), reason="it is not stored")
WARNING = Unexpected(tensors=(stored("b", 2),), reason="no class has it")
INFO = StoredBuffer(tensors=(stored("c", 2),), reason="it is not learned")
CLEAN = Report(requested="o/n", model="o/n", commit="a" * 40, residual=0)
SHUT = Unaudited(
    requested="o/n", component="vae", reason=Reason.UNKNOWN_ARCHITECTURE, detail="not known"
)


def whole(*findings, unaudited=True):
    """A pipeline of which one part has these findings, and one is perhaps not audited."""
    seen = replace(CLEAN, component="unet", findings=findings)
    parts = (seen, SHUT) if unaudited else (seen, replace(seen, component="vae"))
    return replace(CLEAN, residual=None, parts=parts)


def unknown(*findings):
    """A model of a class that nobody knows, whose files have these findings."""
    return replace(SHUT, component=None, findings=findings)


WRONG = BadIndex(file="model.safetensors.index.json", reason="total_size is 0")
COUNTED = WrongTotal(file="model.safetensors.index.json", reason="total_parameters is 0")
OUTCOMES = {
    **{name: make() for name, make in EXAMPLES.items()},
    "clean": CLEAN,
    "an error": replace(CLEAN, findings=(ERROR,)),
    "a warning": replace(CLEAN, findings=(WARNING,)),
    "a residual": replace(CLEAN, residual=3),
    "a bad request": replace(SHUT, reason=Reason.BAD_REQUEST, component=None),
    "an error beside what is not audited": whole(ERROR, INFO),
    "a warning beside what is not audited": whole(WARNING),
    "both beside what is not audited": whole(ERROR, WARNING),
    "an error of one part of two": whole(ERROR, unaudited=False),
    "a pipeline, all clean": whole(INFO, unaudited=False),
    "a pipeline that is not audited": replace(SHUT, component=None, parts=whole().parts),
    "an error of files that are not audited": unknown(WRONG, INFO),
    "a warning of files that are not audited": unknown(COUNTED),
    "both of files that are not audited": unknown(COUNTED, WRONG),
    "nothing but info of files that are not audited": unknown(INFO),
}


def alarms_of(outcome, path):
    """What a store says of a night on which this came of the one model."""
    name = outcome.model or outcome.requested
    with StoreWriter.open(path) as ledger:
        night = ledger.begin("n1", "all", VERSIONS)
        plan = ledger.new_plan("n1")
        ledger.add(night, plan, [SelectedModel(name, "a" * 40, name)])
        ledger.freeze("n1", plan)
        ledger.record(ledger.night("n1"), name, "a" * 40, recorded(outcome))
        return ledger.alarms("n1")


@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
def test_the_sweep_of_a_model_ends_with_the_code_of_its_audit(outcome, tmp_path):
    alarms = alarms_of(outcome, tmp_path / "sweep.sqlite")
    for fail_on in console.FailOn:
        assert sweep.sweep_exit_code(alarms, fail_on) == console.exit_code(outcome, fail_on)


def test_the_codes_are_not_all_the_same():
    table = {
        "clean": (0, 0, 0),
        "an error": (1, 1, 0),
        "a warning": (1, 0, 0),
        "an error beside what is not audited": (1, 1, 3),
        "a warning beside what is not audited": (1, 3, 3),
        "a pipeline that is not audited": (3, 3, 3),
        "a bad request": (2, 2, 2),
        "an error of files that are not audited": (1, 1, 3),
        "a warning of files that are not audited": (1, 3, 3),
        "both of files that are not audited": (1, 1, 3),
        "nothing but info of files that are not audited": (3, 3, 3),
    }
    order = (console.FailOn.WARNING, console.FailOn.ERROR, console.FailOn.NEVER)
    codes = {
        name: tuple(console.exit_code(OUTCOMES[name], fail_on) for fail_on in order)
        for name in table
    }
    assert codes == table
    assert every_kind().verdict == pipeline().verdict == "findings"


# --- the list of commands -------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_describes_a_command_by_the_first_line_of_its_help(name: str) -> None:
    first = (inspect.getdoc(function_of(name)) or "").partition("\n\n")[0]
    assert COMMANDS[name].help == " ".join(first.split())
