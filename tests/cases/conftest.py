"""Collect the cases: each document of a YAML file, and each variation of it, is a test."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cases import Case, audited, build, cases_of, observed
from support.cases_of_claims import judged
from support.cases_of_comparisons import compared
from support.command_cases import observed_by_command


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".yaml" and file_path.name != "models.yaml":
        return CaseFile.from_parent(parent, path=file_path)
    return None


class CaseFile(pytest.File):
    """A file of cases."""

    def collect(self) -> Iterator[pytest.Item]:
        for case in cases_of(self.path):
            yield CaseItem.from_parent(self, name=case.name, case=case)


class CaseItem(pytest.Item):
    """A case: build the folder, audit it, and compare what is observed with what is expected."""

    def __init__(self, *, case: Case, **options: object) -> None:
        super().__init__(**options)
        self.case = case

    def runtest(self) -> None:
        place = Path(tempfile.mkdtemp(prefix="case-"))
        try:
            expected, found = _result(self.case, place, self.path.parent.name)
        finally:
            shutil.rmtree(place)
        if found != expected:
            raise DifferenceError(expected, found)

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, DifferenceError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.name}: {self.name}"


def _result(case: Case, place: Path, subject: str) -> tuple[dict, dict]:
    """Return what the case expects and what is observed: an audit, a comparison or verdicts."""
    if "claims" in case.keys:
        return judged(case, place)
    if "second" in case.keys:
        return compared(case, place)
    folder = build(case, place / "model")
    if subject == "bad_input":
        return case.keys["expect"], observed_by_command(case, folder)
    return case.keys["expect"], observed(case, folder, audited(case, folder))


class DifferenceError(AssertionError):
    """The keys of an expectation that came out differently."""

    def __init__(self, expected: dict, found: dict) -> None:
        keys = sorted(key for key in {*expected, *found} if expected.get(key) != found.get(key))
        rows = (f"  {key}: {found.get(key)}, expected {expected.get(key)}" for key in keys)
        super().__init__("\n".join(("The audit differs from the expectation:", *rows)))
