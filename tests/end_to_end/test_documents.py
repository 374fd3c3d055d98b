"""What the documents show is what the commands print, and what they name exists."""

import doctest
import re
import subprocess
import sys
from pathlib import Path

from fuzz.run import TARGETS as FUZZED
from rewrite_documents import DOCUMENTS, SHOWN, TABLES, marked, printed
from rewrite_security import SECURITY, rewritten
from support.programs import ROOT
from support.running import run

from auditor.formats import as_csv, tensor_table

TEXTS = {path.name: path.read_text() for path in DOCUMENTS}
EVERYTHING = "\n".join(TEXTS.values())
CONSOLE = sorted(dict.fromkeys((block[2], block[3]) for block in SHOWN.finditer(EVERYTHING)))
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PATH = re.compile(r"(?<![\w/.-])(?:auditor|docs|tests|tools)/[\w./-]*[\w/]")
PLACEHOLDER = re.compile(r"NAME|TYPE|KIND|FILE")  # what a recipe's reader puts there
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"```python (test_\w+\.py)\n(.*?)```", re.DOTALL)
CASE = re.compile(r"```yaml (\w+/[\w-]+\.yaml)\n(.*?)```", re.DOTALL)
STRATEGY = re.compile(r"```python strategies/(\w+\.py)\n(.*?)```", re.DOTALL)


def test_a_command_prints_what_the_documents_show(subtests):
    for command, shown in CONSOLE:
        with subtests.test(command=command, shown=shown):
            assert printed(command) == shown


def test_the_readme_and_contributing_are_short() -> None:
    assert len(TEXTS["README.md"].splitlines()) <= 150
    assert len(CONTRIBUTING.read_bytes()) <= 12_000


def test_what_a_document_names_exists() -> None:
    for document in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        text = document.read_text()
        links = [link for link in LINK.findall(CODE.sub("", text)) if "://" not in link]
        named = [path for path in PATH.findall(text) if not PLACEHOLDER.search(path)]
        absent = [link for link in links if not (document.parent / link).exists()]
        absent += [path for path in named if not (ROOT / path).exists()]
        absent += set(re.findall(r"`make ([a-z][a-z-]*)", text)) - TARGETS
        assert absent == [], document


def test_the_python_sessions_of_the_documents_are_true() -> None:
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", EVERYTHING, re.DOTALL))
    test = doctest.DocTestParser().get_doctest(blocks, {}, "documents", "documents", 0)
    result = doctest.DocTestRunner().run(test)
    assert result.attempted > 5
    assert result.failed == 0


def test_no_document_installs_the_package_from_an_index() -> None:
    """It is not published; `.`, an archive and a repository are what a reader has."""
    assert from_an_index("Run `pip\ninstall hf-audit`,")
    assert from_an_index('uv tool install \\\n    "hf-audit[values]"')
    assert not from_an_index("pip install 'hf-audit @ git+https://host/hf-audit'")
    assert not from_an_index(
        "needs `hf-audit[values]`: `pip install '.[values]'` in a clone of hf-audit"
    )
    assert re.search(r"pip install", EVERYTHING)
    assert from_an_index(EVERYTHING) == []


def from_an_index(text: str) -> list[str]:
    """Return the install commands, also broken ones, that name the package and no address."""
    command = r"(?:pipx?|tool)\s+install\s(?:(?!\n\n)[^`#])*?\bhf-audit(?:\[|['\"`\s]|$)[^`\n]*"
    return [one for one in re.findall(command, text) if "git+" not in one]


def test_the_image_is_built_from_the_clone_and_runs_without_rights() -> None:
    steps = (ROOT / "docs" / "Dockerfile").read_text().splitlines()
    words = [step.partition(" ")[0] for step in steps]
    assert words == ["FROM", "ARG", "COPY", "RUN", "USER", "WORKDIR", "ENTRYPOINT"]
    [base] = re.fullmatch(r"FROM python:3\.(\d+)-slim", steps[0]).groups()
    assert int(base) >= 11
    assert '"/src${EXTRAS}"' in steps[3]
    assert (steps[4], steps[-1]) == ("USER audit", 'ENTRYPOINT ["audit"]')


def test_a_table_is_printed_from_what_it_is_about(subtests):
    for name in TABLES:
        with subtests.test(name=name):
            [found] = marked(name).finditer(EVERYTHING)
            assert found[2] == TABLES[name]()


def test_the_columns_of_the_tables_are_documented() -> None:
    for table in ("MODELS", "MODULES", "FINDINGS", "DIAGNOSIS", "TENSORS"):
        module = tensor_table if table == "TENSORS" else as_csv
        columns = ", ".join(f"`{column}`" for column in getattr(module, table))
        assert f"| {table.lower()}.csv | {columns} |" in EVERYTHING


def test_the_sample_reports_are_what_the_command_writes(tmp_path: Path, hub_env) -> None:
    sample = ROOT / "reports" / "sample"
    args = ("--source", "bundled", "--format", "csv", "-q", "-o", str(tmp_path))
    env = {**hub_env, "SOURCE_DATE_EPOCH": "1795824000"}
    assert run("bert-base-chinese", *args, env=env).returncode == 0
    written = {path.name: path.read_text() for path in tmp_path.glob("*.csv")}
    assert written == {path.name: path.read_text() for path in sample.glob("*.csv")}


def test_the_table_of_architectures_is_the_one_that_the_command_prints() -> None:
    table = run("architectures", "--markdown").stdout
    assert f"\n\n{table}\n</details>" in EVERYTHING
    types, classes = re.findall(r"(\d+) model types, (\d+) classes", table)[0]
    assert f"{types} model types, {classes} classes: encoders" in EVERYTHING


def test_the_tests_to_paste_run_as_they_are(tmp_path):
    blocks = BLOCK.findall(CONTRIBUTING.read_text())
    assert len(blocks) == 2  # a layout, a format
    for name, text in blocks:
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-c", str(ROOT / "pyproject.toml")]
    done = subprocess.run(  # noqa: S603 - the document's own tests
        [*command, "-p", "no:cacheprovider", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_strategy_to_paste_is_the_one_of_its_type():
    [(name, text)] = STRATEGY.findall(CONTRIBUTING.read_text())
    assert (ROOT / "tests" / "support" / "strategies" / name).read_text() == text


def test_the_cases_to_paste_are_the_first_of_their_files():
    cases = CASE.findall(CONTRIBUTING.read_text())
    assert len(cases) == 2  # a finding, a cause
    for name, text in cases:
        assert (ROOT / "tests" / "cases" / name).read_text().startswith(text)


def test_the_bounds_of_security_are_those_of_the_code() -> None:
    text = SECURITY.read_text()
    assert rewritten(text) == text
    assert text.count("<!-- bounds -->") == 1
    assert [name for name in FUZZED if f"`{name}`" not in text] == []
