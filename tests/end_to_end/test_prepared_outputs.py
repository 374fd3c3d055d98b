"""Outputs that a checkout has prepared as links: each command leaves what they lead to."""

import os
from datetime import date

import pytest
from support.nightly_stores import THIRD, A, B, plain, store_of, unaudited
from support.running import run
from support.stopped_fixes import spoiled_folder

NIGHT = {THIRD: [plain("o/a", A, B), unaudited("o/gated"), plain("p/b", B)]}
NAMES = (
    *("models.csv", "modules.csv", "findings.csv", "tensors.csv", "diagnosis.csv"),
    *("changes.csv", "index.html", "summary.json", "report.md", "report.github", "outputs"),
)
MODEL = ("model", "-q")
COMMANDS = {
    "csv": (*MODEL, "--format", "csv", "-o"),
    "github": (*MODEL, "--format", "github", "-o"),
    "json": (*MODEL, "--format", "json", "-o"),
    "snapshot": ("snapshot", *MODEL, "-o"),
    "attest": ("attest", *MODEL, "-o"),
    "explain": ("explain", *MODEL, "-o"),
    "diff": ("diff", "model", "model", "--format", "json", "-o"),
    "report": ("report", "sweep.sqlite", "-q", "-o"),
    "sarif": ("report", "sweep.sqlite", "-q", "-o", "new", "--sarif"),
}
OF_FOLDERS = ("csv", "github", "report")


@pytest.fixture
def place(tmp_path):
    """A checkout, and a folder elsewhere that nothing may change."""
    spoiled_folder(tmp_path / "checkout" / "model", 1)
    store_of(tmp_path / "checkout" / "sweep.sqlite", NIGHT)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "theirs").write_bytes(b"theirs")
    return tmp_path


def is_untouched(place):
    theirs = {path.name: path.read_bytes() for path in (place / "home").iterdir()}
    return theirs == {"theirs": b"theirs"}


@pytest.mark.parametrize("name", OF_FOLDERS)
def test_what_lies_in_the_named_folder_is_replaced(name, place):
    folder = place / "checkout" / "out"
    folder.mkdir()
    for at, file in enumerate(NAMES):
        targets = (lambda path: path.symlink_to("../../home/theirs"), os.mkfifo,
                   lambda path: path.hardlink_to(place / "home" / "theirs"),
                   lambda path: path.symlink_to("../../home/new"))  # fmt: skip
        targets[at % len(targets)](folder / file)
    ran = run(*COMMANDS[name], "out", cwd=place / "checkout")
    assert (ran.returncode, ran.stderr) == (3 if name == "report" else 1, ""), ran.stderr
    assert is_untouched(place)
    written = {path.name for path in folder.iterdir() if path.is_file() and not path.is_symlink()}
    assert written & set(NAMES)


def test_a_named_folder_that_is_a_link_is_refused(place, subtests):
    (place / "checkout" / "out").symlink_to(place / "home")
    for name in OF_FOLDERS:
        with subtests.test(name=name):
            ran = run(*COMMANDS[name], "out", cwd=place / "checkout")
            assert (ran.returncode, is_untouched(place)) == (3, True)
            assert "'out' is a link to " in ran.stderr
            assert "; name the path that it leads to" in ran.stderr


def test_a_file_is_not_written_through_a_link(place, subtests):
    checkout = place / "checkout"
    (checkout / "out").symlink_to(place / "home")
    for name, command in COMMANDS.items():
        with subtests.test(name=name):
            ran = run(*command, "out/new.json", cwd=checkout)
            assert (ran.returncode, is_untouched(place)) == (3, True)
            assert "'out' is a link to " in ran.stderr
            if name in OF_FOLDERS:
                continue
            (checkout / "new.json").unlink(missing_ok=True)
            (checkout / "new.json").symlink_to(place / "home" / "theirs")
            ran = run(*command, "new.json", cwd=checkout)
            assert (ran.returncode in {0, 1, 3}, is_untouched(place)) == (True, True), ran.stderr
            assert (checkout / "new.json").stat().st_size
            assert not (checkout / "new.json").is_symlink()


def test_the_pages_of_a_night_go_through_no_link(place, subtests):
    checkout = place / "checkout"
    for part in ("reports", "reports/nightly", f"reports/nightly/{THIRD}", "night/models"):
        with subtests.test(part=part):
            link = checkout / part
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(place / "home")
            out = ("-o", "night") if part == "night/models" else ()
            ran = run("report", "sweep.sqlite", *out, cwd=checkout)
            assert (ran.returncode, is_untouched(place)) == (3, True)
            assert " is a link to " in ran.stderr
            link.unlink()


def test_no_store_is_written_through_a_link(place, subtests):
    checkout = place / "checkout"
    ids = checkout / "ids"
    ids.write_text("o/a\n")
    env = {**os.environ, "HF_ENDPOINT": "http://127.0.0.1:9"}
    for at, ending in enumerate(("", "-wal", "-shm", "-journal")):
        with subtests.test(ending=ending):
            target = "theirs" if at % 2 else "new"
            (checkout / f"{at}.sqlite{ending}").symlink_to(place / "home" / target)
            options = ("--store", f"{at}.sqlite", "--ids", "ids")
            ran = run("sweep", *options, cwd=checkout, env=env)
            assert (ran.returncode in {2, 3}, is_untouched(place)) == (True, True), ran.stderr


@pytest.mark.parametrize("content", [b"", b"theirs"])
def test_a_store_that_is_a_link_is_read_and_not_written(content, place):
    checkout = place / "checkout"
    (place / "home" / "theirs").write_bytes(content)
    (checkout / "other.sqlite").symlink_to(place / "home" / "theirs")
    ran = run("report", "other.sqlite", cwd=checkout)
    assert ran.returncode in {2, 3}
    assert [path.read_bytes() for path in (place / "home").iterdir()] == [content]
    (checkout / "latest.sqlite").symlink_to("sweep.sqlite")
    assert run("report", "latest.sqlite", "-q", "-o", "out", cwd=checkout).returncode == 3
    assert (checkout / "out" / "index.html").exists()


def test_a_decision_is_not_written_through_a_link(place):
    (place / "checkout" / "baseline.toml").symlink_to(place / "home" / "new")
    given = ("--kind", "missing", "--by", "R", "--reason", "r", "--until", str(date.max))
    ran = run("accept", "sweep.sqlite", "o/a", *given, cwd=place / "checkout")
    assert (ran.returncode, is_untouched(place)) == (3, True)
    assert "'baseline.toml' is a link to " in ran.stderr
