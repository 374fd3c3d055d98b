"""The paths, links and commands that the documents name exist; CONTRIBUTING's tests run."""

import re
import subprocess
import sys

import pytest
from support.programs import ROOT

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
MOST_BYTES = 12_000
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PATH = re.compile(r"(?<![\w/.-])(?:auditor|docs|tests|tools)/[\w./-]*[\w/]")
PLACEHOLDER = re.compile(r"NAME|TYPE|KIND|FILE")  # what a recipe's reader puts there
TARGET = re.compile(r"`make ([a-z][a-z-]*)")
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
CODE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"```python (test_\w+\.py)\n(.*?)```", re.DOTALL)
CASE = re.compile(r"```yaml (\w+/[\w-]+\.yaml)\n(.*?)```", re.DOTALL)
STRATEGY = re.compile(r"```python strategies/(\w+\.py)\n(.*?)```", re.DOTALL)


def prose(document):
    return CODE.sub("", document.read_text())


def test_contributing_is_read_in_one_sitting():
    assert len(CONTRIBUTING.read_bytes()) <= MOST_BYTES


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_that_a_document_names_exists(document):
    named = {path for path in PATH.findall(document.read_text()) if not PLACEHOLDER.search(path)}
    assert {path for path in named if not (ROOT / path).exists()} == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_of_a_document_leads_to_a_file(document):
    links = {link for link in LINK.findall(prose(document)) if "://" not in link}
    assert {link for link in links if not (document.parent / link).exists()} == set()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_make_target_that_a_document_names_is_in_the_makefile(document):
    assert set(TARGET.findall(document.read_text())) <= TARGETS


def test_the_tests_to_paste_run_as_they_are(tmp_path):
    blocks = BLOCK.findall(CONTRIBUTING.read_text())
    assert len(blocks) == 3  # a layout, a format, a finding
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


def test_the_case_to_paste_is_the_first_of_its_file():
    [(name, text)] = CASE.findall(CONTRIBUTING.read_text())
    assert (ROOT / "tests" / "cases" / name).read_text().startswith(text)
