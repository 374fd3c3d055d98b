"""Whatever shape an answer of the Hub has, a push and a comment end in one clear line."""

import pytest
from huggingface_hub import constants
from support.examples import one_in
from support.hub import WrongJson
from support.odd_values import ODD
from support.sweep_models import healthy

from auditor.errors import AuditError, PublishError
from auditor.publishing import hub_writing
from auditor.publishing.comment import comment, revision_of
from auditor.publishing.push import PushTarget, files_of, lost_files, push

MODEL, TOKEN = "org/my-model", "hf_write"
# In JSON, Infinity and NaN are words of Python's alone; an integer of 601 digits is its too.
VALUES = [one for one in ODD if not isinstance(one, float) or one == 1.5]
SHAPES = [*VALUES, {"commitOid": ["a"], "commitUrl": 1}, {"files": [[]]}, {"objects": {"a": 1}}]
PATHS = (
    "/api/repos/create",
    "/api/models/org/my-model",
    "*/preupload/*",
    "*.git/info/lfs/*",
    "*/commit/*",
    "*/revision/*",
    "/api/whoami-v2",
    "*/discussions/1*",
)
CASES = [(path, value) for path in PATHS for value in SHAPES]


@pytest.mark.parametrize("error", [KeyError("url"), IndexError()], ids=repr)
def test_an_error_of_python_in_the_library_is_one_line_that_names_the_server(error):
    with pytest.raises(PublishError) as raised, hub_writing.hub_errors(MODEL, "; in doubt"):
        raise error
    said = str(raised.value)
    assert said.startswith(f"{MODEL}: the answer of {constants.ENDPOINT} is not one of the Hub (")
    assert said.endswith("; in doubt")
    assert "\n" not in said


def test_an_error_of_ours_passes_as_it_is():
    with pytest.raises(PublishError, match=r"^ours$"), hub_writing.hub_errors(MODEL):
        raise PublishError("ours")


@pytest.mark.parametrize(("path", "value"), one_in(20, CASES), ids=repr)
def test_an_answer_of_another_shape_ends_a_push_and_a_comment_in_one_line(
    path, value, at_hub, tmp_path, monkeypatch
):
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    at_hub.let_write(TOKEN)
    folder = tmp_path / "my-model"
    folder.mkdir()
    for name, content in healthy(0).items():
        (folder / name).write_bytes(content)
    files, to = files_of(folder), PushTarget(repository=MODEL, token=TOKEN)
    at_hub.add(MODEL, {"old.txt": b"old"})
    at_hub.misbehave(fault=WrongJson(value=value), path=path)

    def sent():
        return lost_files(folder, files, to, push(folder, files, to), print)

    for work in (
        sent,
        lambda: comment(MODEL, 1, "a report", TOKEN),
        lambda: revision_of(MODEL, 1, TOKEN, reads_only=True),
    ):
        try:
            work()
        except AuditError as refusal:
            assert "\n" not in str(refusal)  # noqa: PT017 - one line
