"""Whatever a server does, an audit ends with one line and a documented exit code, in few bytes."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from server_faults import FAULTS, RAW, Met, expected_code, met

MOST_MORE = 64 * 2**20  # bytes beyond a plain audit's
AT_ONCE = 8  # audits that do nothing but wait, mostly
BUSY = {name for name in (*FAULTS, *RAW) if "without end" in name or expected_code(name) == 0}
WAITING = [name for name in (*FAULTS, *RAW) if name not in BUSY]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    found = met("", tmp_path_factory.mktemp("plain"))
    assert found.code == 0
    return found.memory


@pytest.fixture(scope="module")
def waiting(tmp_path_factory) -> Iterator[Mapping[str, Future[Met]]]:
    """What came of those that wait, which they do side by side."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(audited, name, tmp_path_factory.mktemp("at")) for name in WAITING}


def audited(name, folder) -> Met:
    return met(name, folder, HF_HUB_DOWNLOAD_TIMEOUT="1")


@pytest.mark.parametrize("name", WAITING)
def test_a_server_whose_fault_persists_is_reported(name, plain, waiting):
    assert_told(name, waiting[name].result(), plain)


@pytest.mark.parametrize("name", sorted(BUSY))
def test_a_server_that_misbehaves_is_reported(name, plain, tmp_path):
    assert_told(name, audited(name, tmp_path), plain)


def assert_told(name, found, plain):
    assert found.code == expected_code(name), found.said
    assert "Traceback" not in found.said
    assert found.memory - plain < MOST_MORE
    if found.code == 3:
        assert found.said.splitlines()[-1].startswith("audit: org/name: ")
