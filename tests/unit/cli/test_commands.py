"""The list of commands, which is printed without loading them."""

import inspect

import pytest

from auditor.cli.app import COMMANDS, function_of


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_describes_a_command_by_the_first_line_of_its_help(name: str) -> None:
    first = (inspect.getdoc(function_of(name)) or "").partition("\n\n")[0]
    assert COMMANDS[name].help == " ".join(first.split())
