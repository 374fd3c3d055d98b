"""What a user writes, told apart: paths that exist, Hub ids, addresses, and neither."""

from pathlib import Path

import pytest
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from hypothesis import example, given
from hypothesis import strategies as st

from auditor.checkpoint.hub_listing import id_fault
from auditor.downloader.model_argument import HubModel, parse_model
from auditor.errors import UsageError

NEARLY_IDS = st.text(alphabet="aZ9-_./é \n~", max_size=8) | st.text(max_size=6)
STARTS = st.sampled_from(["", "https://huggingface.co/", "hf://", "org/name/"])


@given(NEARLY_IDS | st.integers(90, 100).map(lambda n: "a" * n))
@example("a" * 96 + "/" + "b" * 96)
@example("a" * 97)
@example("org/name.git")
@example("a--b")
@example("a/b/c")
@example("_a_")
@example("a\n")
@example("")
def test_an_id_has_a_fault_exactly_when_huggingface_hub_refuses_it(text):
    try:
        validate_repo_id(text)
    except HFValidationError:
        assert id_fault(text)
    else:
        assert id_fault(text) is None


@given(STARTS, NEARLY_IDS)
def test_anything_is_a_request_or_a_usage_error_of_one_line(start, text):
    try:
        found = parse_model(f"{start}{text}")
    except UsageError as error:
        found = str(error)
    assert isinstance(found, Path) or "\n" not in getattr(found, "id", found)


WEB = "https://huggingface.co"
MODELS = {
    "bert-base-chinese": HubModel(id="bert-base-chinese"),
    "org/name@refs/pr/1": HubModel(id="org/name", revision="refs/pr/1"),
    "name@user/branch-2": HubModel(id="name", revision="user/branch-2"),
    "o/n:Q4_K_M": HubModel(id="o/n", tag="Q4_K_M"),
    "o/n:a/b.gguf@main": HubModel(id="o/n", revision="main", tag="a/b.gguf"),
    f"{WEB}/org/name/": HubModel(id="org/name"),
    "huggingface.co/org/name?library=transformers": HubModel(id="org/name"),
    "https://hf.co/org/name#files": HubModel(id="org/name"),
    f"{WEB}/org/name.git": HubModel(id="org/name"),
    f"{WEB}/gpt2/tree/main": HubModel(id="gpt2", revision="main"),
    f"{WEB}/org/name/tree/main/vae": HubModel(id="org/name", revision="main", place="vae"),
    f"{WEB}/org/name/tree/user%2Fb": HubModel(id="org/name", revision="user/b"),
    f"{WEB}/org/name/discussions/3": HubModel(id="org/name"),
    f"{WEB}/org/name/resolve/refs/pr/7/a.gguf?download=true": HubModel(
        id="org/name", revision="refs/pr/7", place="a.gguf"
    ),
    f"{WEB}/api/models/org/name": HubModel(id="org/name"),
    "hf://models/org/name@v1/a b.bin": HubModel(id="org/name", revision="v1", place="a b.bin"),
    "hf://org/name@refs/pr/7/vae/m.bin": HubModel(
        id="org/name", revision="refs/pr/7", place="vae/m.bin"
    ),
    "hf://gpt2@main/config.json": HubModel(id="gpt2", revision="main", place="config.json"),
    "org/name@v1/unet/m.safetensors": HubModel(
        id="org/name", revision="v1", place="unet/m.safetensors"
    ),
}
REFUSED = {
    "": "a part of it is empty",
    "a/b/c": "one '/' at most",
    "naïve": "'ï' is not a letter",
    "-name": "starts or ends with",
    "a" * 97: "96 characters at most, this one has 97",
    "org--name": "no '--'",
    "name@": "nothing follows the '@'",
    "name@a..b": "contain '..'",
    "name@/a": "check its first and last character",
    "name@a\x1b[31m": r"contain '\x1b'",
    "name@" + "a" * 256: "at most 255 bytes",
    "o/n:": "after the ':' does not name a GGUF file",
    "o/n:a b": "after the ':' does not name a GGUF file",
    "hf://": "it has no path",
    "https://github.com/org/name": "'github.com' is another site",
    f"{WEB}/datasets/org/name": "the address of a dataset",
    f"{WEB}/org/name/nowhere": "not a page of a model",
    f"{WEB}/org/na%20me": "' ' is not a letter",
    f"{WEB}/org/name/tree/a%5Eb": "contain '^'",
    "https://[": "Invalid IPv6 URL",
    **dict.fromkeys(
        ("./none", "none/", "/none/at/all", "~/none", "none.json", "a/b/../c.json"),
        "no such file or folder here: ",
    ),
}


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as raised:
        parse_model(text)
    return str(raised.value)


def test_an_id_an_address_or_a_file_of_a_model_is_that_model():
    assert {text: parse_model(text) for text in MODELS} == MODELS


def test_what_is_neither_is_refused_by_name():
    assert [text for text, fault in REFUSED.items() if fault not in refusal(text)] == []


def test_a_path_that_exists_wins_over_an_id(tmp_path, monkeypatch):
    (tmp_path / "gpt2").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_model("gpt2") == Path("gpt2")
    assert parse_model("~/gpt2") == tmp_path / "gpt2"


def test_a_model_that_moved_is_known_by_both_names():
    assert HubModel(id="google-bert/bert-base-cased").aliases[1:] == ("bert-base-cased",)
    assert "google-bert/bert-base-cased" in HubModel(id="bert-base-cased").aliases
    assert HubModel(id="org/bert-base-cased").aliases == ("org/bert-base-cased",)
