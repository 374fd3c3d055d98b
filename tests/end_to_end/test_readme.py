"""What the README shows is what the commands print."""

import doctest
import re
import shlex
from pathlib import Path

import pytest
from rewrite_readme import (
    CAUSES,
    KINDS,
    SHOWN_FORMATS,
    table_of_causes,
    table_of_formats,
    table_of_kinds,
)
from support.programs import ROOT
from support.running import run

from auditor.formats import as_csv

README = (ROOT / "README.md").read_text()
_SHOWN = re.findall(r"```console\n\$ (audit [^\n]*)\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize(("command", "shown"), _SHOWN, ids=[command for command, _ in _SHOWN])
def test_a_command_prints_what_the_readme_shows(command: str, shown: str, hub_env) -> None:
    assert run(*shlex.split(command)[1:], env=hub_env).stdout == shown


def test_the_python_session_of_the_readme_is_true() -> None:
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", README, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "README", "README.md", 0)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted > 5
    assert result.failed == 0


def test_the_table_of_formats_is_printed_from_their_registry() -> None:
    assert SHOWN_FORMATS.findall(README)
    assert f"<!-- formats -->\n{table_of_formats()}\n<!-- end of formats -->" in README


def test_the_tables_of_kinds_are_printed_from_the_findings() -> None:
    assert [block[0] for block in KINDS.finditer(README)] == [
        f"<!-- kinds -->\n{table_of_kinds()}\n<!-- end of kinds -->"
    ]


def test_the_table_of_causes_is_printed_from_their_modules() -> None:
    assert [block[0] for block in CAUSES.finditer(README)] == [
        f"<!-- causes -->\n{table_of_causes()}\n<!-- end of causes -->"
    ]


@pytest.mark.parametrize("table", ["MODELS", "MODULES", "FINDINGS", "DIAGNOSIS"])
def test_the_columns_of_the_tables_are_documented(table: str) -> None:
    columns = ", ".join(f"`{column}`" for column in getattr(as_csv, table))
    assert f"| {table.lower()}.csv | {columns} |" in README


def test_the_sample_reports_are_what_the_command_writes(tmp_path: Path, hub_env) -> None:
    sample = ROOT / "reports" / "sample"
    args = ("--source", "bundled", "--format", "csv", "-q", "-o", str(tmp_path))
    assert run("bert-base-chinese", *args, env=hub_env).returncode == 0
    written = {path.name: path.read_text() for path in tmp_path.glob("*.csv")}
    assert written == {path.name: path.read_text() for path in sample.glob("*.csv")}


def test_the_table_of_architectures_is_the_one_that_the_command_prints() -> None:
    table = run("architectures", "--markdown").stdout
    assert f"\n\n{table}\n</details>" in README
    types, classes = re.findall(r"(\d+) model types, (\d+) classes", table)[0]
    assert f"{types} model types, {classes} classes: encoders" in README
