"""The list of commands, which is printed without loading them."""

import inspect

import pytest

from auditor.cli.app import COMMANDS, function_of


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_of_a_command_what_its_own_help_begins_with(name: str) -> None:
    first = (inspect.getdoc(function_of(name)) or "").partition("\n\n")[0]
    assert COMMANDS[name].help == " ".join(first.split())
