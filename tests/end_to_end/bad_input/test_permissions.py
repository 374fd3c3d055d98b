"""What may not be read or written, as another user than root; every case ends with a reason."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.bad_input.making import CONFIG, INDEX, SHARDS, WEIGHTS, sharded, whole
from support.bad_input.running import CLEAN, UNAUDITED, Run, environment, run


@pytest.fixture
def place() -> Iterator[Path]:
    """An empty folder in which everybody may look; those of pytest are its user's alone."""
    folder = Path(tempfile.mkdtemp(prefix="audit-permissions-"))
    folder.chmod(0o755)
    yield folder
    for path, folders, _ in os.walk(folder):
        for name in folders:
            Path(path, name).chmod(0o755)
    shutil.rmtree(folder)


@pytest.fixture
def audit(place: Path, tmp_path: Path) -> Callable[..., Run]:
    def audit(*args: str) -> Run:
        env = environment(tmp_path / "home")
        ran = run(*args, env=env, cwd=place, options=("nobody",))
        assert "Traceback" not in ran.stderr
        return ran

    return audit


def assert_unreadable(ran, name: str, why: str = "Permission denied") -> None:
    assert ran.code == UNAUDITED
    shown = " ".join(f"{ran.stdout} {ran.stderr}".split())
    assert "unreadable" in shown
    assert f"{name}' cannot be read: {why}" in shown


def closed(path: Path, mode: int = 0) -> None:
    path.chmod(mode)


def test_what_may_be_read_is_clean(audit, place):
    ran = audit(str(whole(place / "m")))
    assert (ran.code, ran.stderr) == (CLEAN, "")


@pytest.mark.parametrize("name", [CONFIG, WEIGHTS])
@pytest.mark.parametrize("asked", ["m", f"m/{WEIGHTS}"])
def test_a_file_that_may_not_be_read(name, asked, audit, place):
    closed(whole(place / "m") / name)
    assert_unreadable(audit(asked), name)


@pytest.mark.parametrize("name", [INDEX, SHARDS[1]])
def test_a_part_of_shards_that_may_not_be_read(name, audit, place):
    closed(sharded(place / "m") / name)
    assert_unreadable(audit("m"), name)


@pytest.mark.parametrize("mode", [0, 0o311], ids=["at all", "but entered"])
def test_a_folder_that_may_not_be_read(mode, audit, place):
    closed(whole(place / "m"), mode)
    assert_unreadable(audit("m"), "m")


def test_a_folder_that_may_be_listed_and_not_entered(audit, place):
    closed(whole(place / "m"), 0o644)
    ran = audit("m")
    assert_unreadable(ran, CONFIG)


def test_weights_that_are_a_link_into_a_closed_folder(audit, place):
    folder = whole(place / "m")
    (place / "blobs").mkdir()
    (folder / WEIGHTS).rename(place / "blobs" / "b")
    (folder / WEIGHTS).symlink_to("../blobs/b")
    closed(place / "blobs")
    ran = audit("m")
    assert (ran.code, "is a link out of the folder" in " ".join(ran.stdout.split())) == (3, True)


def test_another_link_into_a_closed_folder_does_no_harm(audit, place):
    folder = whole(place / "m")
    (place / "mine").mkdir()
    (folder / "notes").symlink_to("../mine/notes")
    closed(place / "mine")
    assert audit("m").code == CLEAN


def test_a_folder_inside_that_may_not_be_read(audit, place):
    inside = whole(place / "m") / "inside"
    inside.mkdir()
    closed(inside)
    assert_unreadable(audit("m"), "inside")


@pytest.mark.parametrize("asked", ["private/model", "private/model/model.safetensors"])
def test_an_unreadable_folder_sends_no_request_to_the_hub(asked, audit, place):
    """`private/model` would be a Hub id; nobody is told that there is such a folder."""
    whole(place / "private" / "model")
    closed(place / "private")
    assert_unreadable(audit(asked), asked)


@pytest.mark.parametrize("asked", ["loop", "loop/model", "org/loop"])
def test_a_circular_link_sends_no_request_to_the_hub(asked, audit, place):
    (place / "org").mkdir()
    for name in ("loop", "org/loop"):
        (place / name).symlink_to("loop")
    assert_unreadable(audit(asked), asked, "Too many levels of symbolic links")


def test_a_broken_link_sends_no_request_to_the_hub(audit, place):
    (place / "gone").symlink_to("nowhere")
    ran = audit("gone")
    assert ran.code == UNAUDITED
    assert ran.stderr.endswith(": unreadable: 'gone' is a broken link\n")


@pytest.mark.parametrize("inside", ["snapshots", "refs", "."])
def test_a_cached_model_that_may_not_be_read(inside, audit, place):
    commit = "0123456789abcdef0123456789abcdef01234567"
    model = place / "models--org--name"
    whole(model / "snapshots" / commit)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    closed(model / inside)
    ran = audit(str(model))
    assert ran.code == UNAUDITED
    assert "Permission denied" in ran.stderr


@pytest.mark.parametrize(
    "options", [["-o", "closed/out.json"], ["-o", "closed/out", "--format", "csv"]]
)
def test_an_output_folder_that_may_not_be_written(options, audit, place):
    whole(place / "m")
    (place / "closed").mkdir(mode=0o555)
    ran = audit("m", "-q", *options)
    assert ran.code == UNAUDITED
    assert "cannot write" in ran.stderr
    assert ran.stderr.endswith("Permission denied\n")


def test_a_snapshot_that_may_not_be_written(audit, place):
    whole(place / "m")
    ran = audit("snapshot", "m", "-o", "out.json")
    assert ran.code == UNAUDITED
    assert ran.stderr.endswith("cannot write 'out.json': Permission denied\n")
