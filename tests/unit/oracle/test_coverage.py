"""The oracle answers for what transformers itself builds: every class of its auto mappings.

A sample here; `make oracle` goes over all of them (ORACLE_PAIRS=all), and prints how many there
are. What cannot be built from the defaults of its config has to say why, in one line.
"""

import os
from pathlib import Path

import pytest

from auditor.analytic import Config, Role
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.oracle.client import Oracle, Process
from auditor.oracle.transformers_classes import installed_library

pytestmark = pytest.mark.oracle

IS_WHOLE = os.environ.get("ORACLE_PAIRS") == "all"
CHUNKS = 16 if IS_WHOLE else 1  # for the workers of pytest to share
SAMPLE = 8  # of 1,576
LEAST = 0.85  # 1,452 of 1,576 with transformers 5.23; the others want more than their defaults


@pytest.fixture(scope="module")
def oracle(tmp_path_factory):
    process = Process()
    yield Oracle(installed_library(), Path(tmp_path_factory.mktemp("answers")), process)
    process.end()


def pairs() -> list[tuple[str, str]]:
    listed = sorted(installed_library().listed.items())
    every = [(model_type, name) for model_type, names in listed for name in names]
    return every if IS_WHOLE else every[:: len(every) // SAMPLE]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_oracle_builds_what_transformers_builds_by_default(oracle, chunk, record_property):
    built, refused = 0, []
    for model_type, name in pairs()[chunk::CHUNKS]:
        assert model_type in oracle.types(name)
        try:
            found = oracle.expect(Config(values={}), name)
        except (CheckpointError, SourceError) as error:
            refused.append(error)
            continue
        names = [tensor.name for tensor in found.tensors]
        assert len(set(names)) == len(names)
        stored = [each for each in found.tensors if each.role is Role.PARAMETER]
        assert found.parameters == sum(tensor.elements for tensor in stored)
        tied = {each.tied_to for each in found.tensors if each.role is Role.TIED}
        assert tied <= {tensor.name for tensor in found.tensors}
        built += 1
    assert not [one for one in refused if getattr(one, "reason", None) is Reason.TOO_LARGE]
    assert not [one for one in refused if "\n" in str(one)]
    record_property("oracle_pairs", built)
    record_property("oracle_pairs_refused", len(refused))
    if IS_WHOLE:
        assert built >= LEAST * (built + len(refused)), refused
