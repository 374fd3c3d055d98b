"""A sweep of one model ends as `audit` of that model does."""

import inspect

import pytest
import typer
from msgspec.structs import replace
from support.nightly_stores import VERSIONS
from support.outcomes.every_kind import every_kind
from support.outcomes.examples import EXAMPLES, pipeline
from support.outcomes.making import expected, stored

from auditor.cli import console, sweep
from auditor.cli.app import COMMANDS, function_of
from auditor.cli.parameters import command_of, parameters_of
from auditor.errors import Reason
from auditor.findings import BadIndex, Missing, StoredBuffer, Unexpected, WrongTotal
from auditor.options import OPTIONS, FailOn
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


def test_the_sweep_of_a_model_ends_with_the_code_of_its_audit(tmp_path):
    for name, outcome in OUTCOMES.items():
        alarms = alarms_of(outcome, tmp_path / f"{name}.sqlite")
        for fail_on in FailOn:
            code = sweep.sweep_exit_code(alarms, fail_on)
            assert code == console.exit_code(outcome, fail_on), (name, fail_on)


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
    order = (FailOn.WARNING, FailOn.ERROR, FailOn.NEVER)
    codes = {
        name: tuple(console.exit_code(OUTCOMES[name], fail_on) for fail_on in order)
        for name in table
    }
    assert codes == table
    assert every_kind().verdict == pipeline().verdict == "findings"


# --- the list of commands -------------------------------------------------------------------------


def test_the_list_describes_a_command_by_the_first_line_of_its_help():
    for name, command in COMMANDS.items():
        first = (inspect.getdoc(function_of(name)) or "").partition("\n\n")[0]
        assert command.help == " ".join(first.split()), name


def test_every_row_of_the_options_is_an_option_of_a_command():
    """A row that no parameter has is dead; a parameter without a row fails when it is read."""
    used = {id(one.row) for name in COMMANDS for one in parameters_of(function_of(name))}
    assert [key for key, row in OPTIONS.items() if id(row) not in used] == []


def test_an_option_is_what_its_table_and_its_field_say():
    found = {one.name: one for one in parameters_of(function_of("check"))}
    assert found["companions"].flag == "--no-companions"
    assert (found["companions"].kind, found["companions"].default) == (bool, True)
    assert found["source"].choices == ("hub", "cache", "bundled", "auto")
    assert {"token", "values_budget"} <= found.keys()
    assert found.keys().isdisjoint({"model", "kv_cache", "materials"})  # fields without a row
    found = {one.name: one for one in parameters_of(function_of("sweep"))}
    assert (found["filter"].is_list, found["top"].kind) == (True, int)


@pytest.mark.parametrize(
    ("command", "args", "said"),
    [
        ("check", ["--depth", "-1", "m"], "'--depth': -1 is not 0 or more"),
        ("check", ["--depth", "a", "m"], "'--depth': 'a' is not a whole number"),
        ("check", ["--fail-on", "x", "m"], "'--fail-on': 'x' is not one of 'error', 'warning'"),
        ("sweep", ["--deadline", "nan"], "'--deadline': nan is not 1 or more"),
        ("fix", ["--allow", "x", "m"], "'--allow': 'x' is not one of 'tie-head'"),
    ],
)
def test_a_value_of_another_type_is_refused(command, args, said):
    app = typer.Typer()
    app.command()(command_of(function_of(command)))
    with pytest.raises(typer.BadParameter) as raised:
        app(args, standalone_mode=False)
    assert said in raised.value.format_message()
