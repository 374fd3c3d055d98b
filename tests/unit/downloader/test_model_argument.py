"""What a user writes, told apart: paths that exist, Hub ids, and neither."""

from pathlib import Path

import pytest
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import validate_repo_id
from hypothesis import example, given
from hypothesis import strategies as st

from auditor.downloader.model_argument import HubModel, id_fault, parse_model
from auditor.errors import UsageError

NEARLY_IDS = st.text(alphabet="aZ9-_./é \n~", max_size=8) | st.text(max_size=6)


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


@given(NEARLY_IDS)
def test_anything_is_a_request_or_a_usage_error(text):
    try:
        found = parse_model(text)
    except UsageError as error:
        found = error
    assert isinstance(found, Path | HubModel) or "\n" not in str(found)


@pytest.mark.parametrize(
    ("text", "model_id", "revision"),
    [
        ("bert-base-chinese", "bert-base-chinese", None),
        ("google-bert/bert-base-chinese", "google-bert/bert-base-chinese", None),
        ("org/name@main", "org/name", "main"),
        ("org/name@refs/pr/1", "org/name", "refs/pr/1"),
        ("name@v1.0", "name", "v1.0"),
        ("name@" + "ab" * 20, "name", "ab" * 20),
        ("org/name@user/branch-2", "org/name", "user/branch-2"),
    ],
)
def test_an_id_may_carry_a_revision(text, model_id, revision):
    assert parse_model(text) == HubModel(id=model_id, revision=revision)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "a part of it is empty"),
        ("org/", "a part of it is empty"),
        ("a/b/c", "one '/' at most"),
        ("my model", "' ' is not a letter"),
        ("https://huggingface.co/org/name", "one '/' at most"),
        ("naïve", "'ï' is not a letter"),
        ("-name", "starts or ends with"),
        ("a" * 97, "96 characters at most, this one has 97"),
        ("org--name", "no '--'"),
        ("name.git", "'.git'"),
        ("name@", "nothing follows the '@'"),
        ("name@a..b", "no '..'"),
        ("name@a b", "no ' '"),
        ("name@/a", "how it starts and ends"),
        ("name@a\x1b[31m", r"no '\\x1b'"),
        ("name@" + "a" * 256, "255 bytes at most"),
    ],
)
def test_what_is_neither_is_refused_by_name(text, fault):
    with pytest.raises(UsageError, match=fault):
        parse_model(text)


@pytest.mark.parametrize(
    "text", ["./none", "../none", "/none/at/all", "~/none", "none.json", "a/none.safetensors"]
)
def test_what_looks_like_a_path_and_is_not_there_is_no_id(text):
    with pytest.raises(UsageError, match=r"the file or folder .* does not exist"):
        parse_model(text)


def test_a_path_that_exists_wins_over_an_id(tmp_path, monkeypatch):
    (tmp_path / "gpt2").mkdir()
    monkeypatch.chdir(tmp_path)
    assert parse_model("gpt2") == Path("gpt2")
    assert parse_model("./gpt2") == Path("gpt2")


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    assert parse_model("~/model") == tmp_path / "model"


def test_a_model_that_moved_is_known_by_both_names():
    assert HubModel(id="google-bert/bert-base-cased").aliases[1:] == ("bert-base-cased",)
    assert "google-bert/bert-base-cased" in HubModel(id="bert-base-cased").aliases
    assert HubModel(id="org/bert-base-cased").aliases == ("org/bert-base-cased",)
