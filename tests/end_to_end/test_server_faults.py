"""Whatever a server does, an audit ends with one line and a documented exit code, in few bytes."""

import pytest
from server_faults import FAULTS, RAW, expected_code, met

MOST_MORE = 64 * 2**20  # bytes beyond a plain audit's


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    found = met("", tmp_path_factory.mktemp("plain"))
    assert found.code == 0
    return found.memory


@pytest.mark.parametrize("name", [*FAULTS, *RAW])
def test_a_server_that_misbehaves_is_told(name, plain, tmp_path):
    found = met(name, tmp_path, HF_HUB_DOWNLOAD_TIMEOUT="1")
    assert found.code == expected_code(name), found.said
    assert "Traceback" not in found.said
    assert found.memory - plain < MOST_MORE
    if found.code == 3:
        assert found.said.splitlines()[-1].startswith("audit: org/name: ")
