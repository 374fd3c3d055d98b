"""Whatever a server does, an audit ends with one line and a documented exit code, in few bytes."""

import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from server_faults import FAULTS, RAW, Met, expected_code, met

MOST_MORE = 64 * 2**20  # bytes beyond a plain audit's
AT_ONCE = 8  # audits that do nothing but wait, mostly
SOUND = [name for name in FAULTS if expected_code(name) == 0]
FAILING = [name for name in (*FAULTS, *RAW) if name not in SOUND]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    found = met("", tmp_path_factory.mktemp("plain"))
    assert found.code == 0
    return found.memory


@pytest.fixture(scope="module")
def failing(tmp_path_factory) -> Iterator[Mapping[str, Future[Met]]]:
    """The audits of the servers whose fault persists, side by side."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(audited, name, tmp_path_factory.mktemp("at")) for name in FAILING}


def audited(name, folder) -> Met:
    return met(name, folder, HF_HUB_DOWNLOAD_TIMEOUT="1")


def test_a_server_whose_fault_persists_is_reported(subtests, plain, failing):
    for name in FAILING:
        with subtests.test(name=name):
            assert_reported(name, failing[name].result(), plain)


def test_a_server_that_misbehaves_and_answers_is_audited(subtests, plain, tmp_path):
    for name in SOUND:
        with subtests.test(name=name):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            assert_reported(name, audited(name, place), plain)


def assert_reported(name, found, plain):
    assert found.code == expected_code(name), found.said
    assert "Traceback" not in found.said
    assert found.memory - plain < MOST_MORE
    if found.code == 3:
        assert found.said.splitlines()[-1].startswith("audit: org/name: ")
