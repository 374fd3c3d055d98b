"""What a user writes, told apart: paths that exist, Hub ids, and neither."""

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
        ("a/b/c", "one '/' at most"),
        ("my model", "' ' is not a letter"),
        ("naïve", "'ï' is not a letter"),
        ("-name", "starts or ends with"),
        ("a" * 97, "96 characters at most, this one has 97"),
        ("org--name", "no '--'"),
        ("name.git", "'.git'"),
        ("name@", "nothing follows the '@'"),
        ("name@a..b", "contain '..'"),
        ("name@a b", "contain ' '"),
        ("name@/a", "check its first and last character"),
        ("name@a\x1b[31m", r"contain '\\x1b'"),
        ("name@" + "a" * 256, "at most 255 bytes"),
    ],
)
def test_what_is_neither_is_refused_by_name(text, fault):
    with pytest.raises(UsageError, match=fault):
        parse_model(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://huggingface.co/org/name", ("org/name", None, None)),
        ("https://huggingface.co/org/name/", ("org/name", None, None)),
        ("huggingface.co/org/name?library=transformers", ("org/name", None, None)),
        ("https://hf.co/org/name#files", ("org/name", None, None)),
        ("https://huggingface.co/org/name.git", ("org/name", None, None)),
        ("https://huggingface.co/gpt2", ("gpt2", None, None)),
        ("https://huggingface.co/gpt2/tree/main", ("gpt2", "main", None)),
        ("https://huggingface.co/org/name/tree/v1.0", ("org/name", "v1.0", None)),
        ("https://huggingface.co/org/name/tree/main/vae", ("org/name", "main", "vae")),
        ("https://huggingface.co/org/name/tree/refs%2Fpr%2F7", ("org/name", "refs/pr/7", None)),
        ("https://huggingface.co/org/name/commit/" + "ab" * 20, ("org/name", "ab" * 20, None)),
        ("https://huggingface.co/org/name/discussions/3", ("org/name", None, None)),
        (
            "https://huggingface.co/org/name/blob/main/unet/model.safetensors",
            ("org/name", "main", "unet/model.safetensors"),
        ),
        (
            "https://huggingface.co/org/name/resolve/refs/pr/7/a.gguf?download=true",
            ("org/name", "refs/pr/7", "a.gguf"),
        ),
        ("https://huggingface.co/api/models/org/name", ("org/name", None, None)),
        ("hf://org/name", ("org/name", None, None)),
        ("hf://models/org/name@v1/a b.bin", ("org/name", "v1", "a b.bin")),
        (
            "hf://org/name@refs/pr/7/vae/model.safetensors",
            ("org/name", "refs/pr/7", "vae/model.safetensors"),
        ),
        ("hf://gpt2@main", ("gpt2", "main", None)),
        ("hf://gpt2@main/config.json", ("gpt2", "main", "config.json")),
        ("https://huggingface.co/org/name/tree/user%2Fb", ("org/name", "user/b", None)),
        ("org/name/model.safetensors", ("org/name", None, "model.safetensors")),
        (
            "org/name@v1/unet/model.fp16.safetensors",
            ("org/name", "v1", "unet/model.fp16.safetensors"),
        ),
    ],
)
def test_an_address_or_a_file_of_a_model_is_that_model(text, expected):
    model_id, revision, place = expected
    assert parse_model(text) == HubModel(id=model_id, revision=revision, place=place)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("https://huggingface.co/", "it has no path"),
        ("hf://", "it has no path"),
        ("https://github.com/org/name", "'github.com' is another site"),
        ("https://huggingface.co/datasets/org/name", "the address of a dataset"),
        ("hf://spaces/org/name", "the address of a space"),
        ("https://huggingface.co/api/models", "the address of another part of the API"),
        ("https://huggingface.co/org/name/nowhere", "not a page of a model"),
        ("https://huggingface.co/org/na%20me", "' ' is not a letter"),
        ("https://huggingface.co/org/name/tree/a%5Eb", "contain '\\^'"),
        ("https://[", "Invalid IPv6 URL"),
    ],
)
def test_an_address_of_something_else_is_refused_by_name(text, fault):
    with pytest.raises(UsageError, match=fault):
        parse_model(text)


@given(st.sampled_from(["https://huggingface.co/", "hf://", "org/name/"]), NEARLY_IDS)
def test_an_address_is_a_model_or_a_usage_error_of_one_line(start, text):
    try:
        said = parse_model(f"{start}{text}").id
    except UsageError as error:
        said = str(error)
    assert "\n" not in said


@pytest.mark.parametrize(
    "text",
    [
        "./none",
        "none/",
        "../none",
        "/none/at/all",
        "~/none",
        "none.json",
        "a/none.safetensors",
        "a/b/../c.json",
    ],
)
def test_what_looks_like_a_path_and_is_not_there_is_no_id(text):
    with pytest.raises(UsageError, match=r"no such file or folder here: .* does not exist"):
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
