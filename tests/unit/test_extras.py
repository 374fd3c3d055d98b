"""The libraries of extras, the commands that install them, and the bounds of pyproject.toml."""

import re
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from support.programs import ROOT

from auditor.extras import LIBRARIES, install

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OPTIONAL = PROJECT["optional-dependencies"]
RUN_TIME = [
    *PROJECT["dependencies"],
    *(line for extra in LIBRARIES for line in OPTIONAL[extra] if not line.startswith("hf-audit")),
]
# A command of a sentence, to the end of a literal or of the command.
COMMAND = re.compile(r"pip install ([^)`;,\n]*)")


def requirements(extra):
    """Return the requirements of an extra, and those of the extras that it includes."""
    for line in map(Requirement, OPTIONAL[extra]):
        if line.name == "hf-audit":
            yield from (one for other in line.extras for one in requirements(other))
        else:
            yield line


def test_the_libraries_of_an_extra_are_those_of_the_package(subtests):
    for extra in LIBRARIES:
        with subtests.test(extra=extra):

            def named(line):
                return line.name, frozenset(line.extras)

            assert {named(Requirement(one)) for one in LIBRARIES[extra]} == {
                *map(named, requirements(extra))
            }


def test_each_extra_for_users_has_its_libraries():
    assert {*OPTIONAL} - {"test", "field", "lint"} == {*LIBRARIES}


@pytest.mark.parametrize(
    ("file", "command"),
    [
        (None, "pip install"),
        ("pipx_metadata.json", "pipx inject hf-audit"),
        ("uv-receipt.toml", "uv pip install --python"),
    ],
)
def test_a_command_installs_libraries_where_the_package_is(file, command, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    if file:
        (tmp_path / file).touch()
    for extra, libraries in LIBRARIES.items():
        words = install(extra).removeprefix(command).replace(f'"{tmp_path}"', "").split()
        assert install(extra).startswith(command)
        assert [Requirement(word.strip('"')) for word in words] == [*map(Requirement, libraries)]


def test_no_message_recommends_an_extra_of_a_package_that_no_index_has():
    for path in sorted((ROOT / "auditor").rglob("*.py")):
        assert "hf-audit[" not in path.read_text(), path


def test_every_bound_is_one_that_make_bounds_tries():
    """Its two environments have the lowest and the newest version: no other is excluded."""
    for line in map(Requirement, RUN_TIME):
        assert [one.operator for one in line.specifier] == [">="], line
