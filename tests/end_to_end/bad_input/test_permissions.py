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


def test_what_may_be_read_is_clean(audit, place):
    ran = audit(str(whole(place / "m")))
    assert (ran.code, ran.stderr) == (CLEAN, "")


def hidden(name: str, make=whole, mode: int = 0):
    """A checkpoint of which one file or folder may not be read."""
    return lambda place: (make(place / "m") / name).chmod(mode)


def inside(place: Path) -> None:
    (whole(place / "m") / "inside").mkdir(mode=0)


def private(place: Path) -> None:
    """`private/model` would be a Hub id; nobody is told that there is such a folder."""
    whole(place / "private" / "model")
    (place / "private").chmod(0)


HIDDEN = {
    "the config": (hidden(CONFIG), "m", CONFIG),
    "the weights": (hidden(WEIGHTS), f"m/{WEIGHTS}", WEIGHTS),
    "the index": (hidden(INDEX, sharded), "m", INDEX),
    "a shard": (hidden(SHARDS[1], sharded), "m", SHARDS[1]),
    "the folder": (hidden("."), "m", "m"),
    "a folder that may be entered": (hidden(".", mode=0o311), "m", "m"),
    "a folder that may be listed": (hidden(".", mode=0o644), "m", CONFIG),
    "a folder inside": (inside, "m", "inside"),
    "a folder around": (private, "private/model", "private/model"),
}


@pytest.mark.parametrize("case", HIDDEN)
def test_what_may_not_be_read_is_named_and_asked_of_no_hub(case, audit, place):
    make, asked, name = HIDDEN[case]
    make(place)
    assert_unreadable(audit(asked), name)


def test_weights_that_are_a_link_into_a_closed_folder(audit, place):
    folder = whole(place / "m")
    (place / "blobs").mkdir()
    (folder / WEIGHTS).rename(place / "blobs" / "b")
    (folder / WEIGHTS).symlink_to("../blobs/b")
    (place / "blobs").chmod(0)
    ran = audit("m")
    assert (ran.code, "is a link out of the folder" in " ".join(ran.stdout.split())) == (3, True)


def test_another_link_into_a_closed_folder_does_no_harm(audit, place):
    folder = whole(place / "m")
    (place / "mine").mkdir()
    (folder / "notes").symlink_to("../mine/notes")
    (place / "mine").chmod(0)
    assert audit("m").code == CLEAN


@pytest.mark.parametrize("asked", ["loop/model", "org/loop"])
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


@pytest.mark.parametrize("inside", ["snapshots", "refs"])
def test_a_cached_model_that_may_not_be_read(inside, audit, place):
    commit = "0123456789abcdef0123456789abcdef01234567"
    model = place / "models--org--name"
    whole(model / "snapshots" / commit)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    (model / inside).chmod(0)
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
