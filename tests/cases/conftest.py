"""Collect the cases: each document of a YAML file, and each variation of it, is a test."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cases import Case, audited, build, cases_of, observed
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
            folder = build(self.case, place / "model")
            if self.path.parent.name == "bad_input":
                found = observed_by_command(self.case, folder)
            else:
                found = observed(self.case, folder, audited(self.case, folder))
        finally:
            shutil.rmtree(place)
        expected = self.case.keys["expect"]
        if found != expected:
            raise DifferenceError(expected, found)

    def repr_failure(self, excinfo, style=None):
        if isinstance(excinfo.value, DifferenceError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.name}: {self.name}"


class DifferenceError(AssertionError):
    """The keys of an expectation that came out differently."""

    def __init__(self, expected: dict, found: dict) -> None:
        keys = sorted(key for key in {*expected, *found} if expected.get(key) != found.get(key))
        rows = (f"  {key}: {found.get(key)}, expected {expected.get(key)}" for key in keys)
        super().__init__("\n".join(("The audit differs from the expectation:", *rows)))
