"""The token that is sent is the one that huggingface_hub would send, mostly without asking it."""

import sys
from pathlib import Path

import huggingface_hub
import pytest
from huggingface_hub import constants
from huggingface_hub.utils import _auth
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from auditor.downloader.hub_settings import time_out, usable_token
from auditor.errors import UsageError

# Absent, empty, plain, and as it was copied from somewhere.
WRITTEN = st.sampled_from([None, "", " ", "\n", "hf_one", " hf_two\n", "hf_three\r\n", "hf_\nfour"])
STORED = "[mine]\nhf_token = hf_one\n"
EXPIRING = f"{STORED}refresh_token = again\nexpires_at = 99999999999\n"


def put(machine, name, value):
    if value is None:
        machine.delenv(name, raising=False)
    else:
        machine.setenv(name, value)


def left(path, text):
    Path(path).unlink(missing_ok=True)
    if text is not None:
        Path(path).write_text(text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(new=WRITTEN, old=WRITTEN, file=WRITTEN, known=st.sampled_from([None, STORED, EXPIRING]))
def test_it_is_the_librarys(machine, new, old, file, known):
    put(machine, "HF_TOKEN", new)
    put(machine, "HUGGING_FACE_HUB_TOKEN", old)
    left(constants.HF_TOKEN_PATH, file)
    left(constants.HF_STORED_TOKENS_PATH, known)
    machine.setattr(_auth, "_OAUTH_REFRESH_CACHE", None)
    assert usable_token(None) == huggingface_hub.get_token()


def test_the_library_provides_a_token_that_may_have_to_be_renewed(machine):
    asked = []
    machine.setattr(huggingface_hub, "get_token", lambda: asked.append(1) or "hf_renewed")
    left(constants.HF_TOKEN_PATH, "hf_one")
    assert (usable_token(None), asked) == ("hf_one", [])
    left(constants.HF_STORED_TOKENS_PATH, EXPIRING)
    assert usable_token(None) == "hf_renewed"


@pytest.mark.parametrize("where", ["CI", "Colab"])
def test_the_library_provides_tokens_of_other_sources(where, machine):
    machine.setattr(huggingface_hub, "get_token", lambda: "hf_of_theirs")
    machine.setenv("HF_TOKEN", "hf_one")
    if where == "CI":
        machine.setenv("HF_OIDC_RESOURCE", "o/n")
    else:
        machine.setitem(sys.modules, "google.colab", sys)
    assert usable_token(None) == "hf_of_theirs"


@given(seconds=st.integers() | st.just(10**30))
def test_a_time_out_is_a_time_or_named(seconds):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_DOWNLOAD_TIMEOUT", seconds)
        if 1 <= seconds <= 86_400:
            assert time_out() == seconds
        else:
            with pytest.raises(UsageError, match=r"HF_HUB_DOWNLOAD_TIMEOUT is .*expected 1 to"):
                time_out()
