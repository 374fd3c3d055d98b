"""`audit push` to a Hub that takes commits: what reaches it, and what never does."""

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import replace
from support.examples import IS_THOROUGH
from support.hub import Fault, Reset
from support.running import run, started
from support.sweep_models import CONFIG, FAULTS, WEIGHTS, healthy

from auditor.errors import PublishError
from auditor.publishing import push as pushing

ERRORS = ("missing", "mismatched", "bad-header", "bad-size", "bad-config")
MODEL = "org/my-model"
WRITE, READ = "hf_write", "hf_read"


@dataclass(frozen=True, kw_only=True)
class When(Fault):
    """No fault: does something when a request has been answered and the answer is not yet sent."""

    do: Callable[[], object]

    def spoil(self, request, answer):  # noqa: ARG002
        self.do()
        return answer


@pytest.fixture(name="folder")
def a_folder(tmp_path):
    folder = tmp_path / "my-model"
    write(folder, healthy(0))
    return folder


@pytest.fixture(name="env")
def an_environment_with_a_token(hub, hub_env):
    hub.let_write(WRITE)
    hub.grant(READ)
    return hub_env | {"HF_TOKEN": WRITE}


def write(folder, files):
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def push(folder, env, *options, model=MODEL):
    return run("push", folder.name, model, *options, env=env, cwd=folder.parent)


def requests(hub, part):
    return [one for one in hub.log if part in one.path]


def own_files(hub, model=MODEL, revision="main"):
    """The files of a model on the Hub, without the one that the Hub itself makes."""
    files = hub.stored(model, revision)
    return files and {name: each for name, each in files.items() if name != ".gitattributes"}


def test_a_push_is_one_commit_of_the_folder_without_what_other_programs_keep_there(
    hub, env, folder
):
    sent = healthy(0) | {"README.md": b"# a model\n", "sub/notes.txt": b""}
    names = (".git/HEAD", ".cache/huggingface/x", "b.orig")
    left = dict.fromkeys(names, b"left")
    write(folder, sent | left)
    done = push(folder, env)
    assert (done.returncode, own_files(hub)) == (0, sent), done.stderr
    assert len(requests(hub, "/commit/")) == 1
    named = (".git", ".cache/huggingface/x", "b.orig")
    assert all(repr(name) in done.stderr for name in named)
    again = push(folder, env)
    assert (again.returncode, len(requests(hub, "/commit/"))) == (0, 1)
    assert "no new commit" in again.stderr


LINKS = {"NOTES.md": "secret", "sub/.hidden": "/etc", WEIGHTS: "my-model/chain", "a": "absent"}


def test_a_link_out_of_the_folder_is_sent_by_no_push(hub, env, folder):
    (folder.parent / "secret").write_bytes(b"hf_abcdefgh")
    (folder / "chain").symlink_to(folder.parent / "secret")
    (folder / "sub").mkdir()
    for name, target in LINKS.items():
        path = folder / name
        path.unlink(missing_ok=True)
        path.symlink_to(folder.parent / target)
        done = push(folder, env, "--fail-on", "never")
        assert (done.returncode, hub.log) == (3, ()), done.stderr
        assert "has links out of the folder" in done.stderr
        assert repr(name) in done.stderr
        path.unlink()


def test_packages_and_other_entries_that_are_no_files_are_named_and_not_sent(hub, env, folder):
    names = ("node_modules/a/x.js", "lib/site-packages/x.py", "venv/bin/python", ".git/config")
    write(folder, dict.fromkeys(names, b"x") | {"venv/pyvenv.cfg": b"", ".hidden/a.txt": b"a"})
    (folder / "again").symlink_to(".hidden")
    os.mkfifo(folder / "pipe")
    done = push(folder, env)
    assert done.returncode == 0, done.stderr
    sent = healthy(0) | {"venv/pyvenv.cfg": b"", ".hidden/a.txt": b"a"}
    assert own_files(hub) == sent
    skipped = ("node_modules", "lib/site-packages", "venv/bin", ".git", "again", "pipe")
    assert all(f"audit: not sent: {name!r}: not " in done.stderr for name in skipped)


def test_a_planted_fault_never_reaches_the_hub(hub, env, folder, subtests):
    for kind, files_of in FAULTS.items():
        with subtests.test(kind=kind):
            shutil.rmtree(folder)
            write(folder, healthy(0) | files_of(0))
            done = push(folder, env, "--fail-on", "warning")
            assert (done.returncode, hub.log) == (1, ()), done.stderr
            assert done.stderr.endswith("audit: nothing was sent\n")
            assert done.stdout == run("my-model", env=env, cwd=folder.parent).stdout
            if kind in ERRORS:
                assert (push(folder, env).returncode, hub.log) == (1, ())


def test_what_could_not_be_audited_is_sent_only_on_request(hub, env, folder):
    (folder / CONFIG).write_text('{"model_type": "nobody-knows", "architectures": ["Nobody"]}')
    assert (push(folder, env).returncode, hub.log) == (3, ())
    done = push(folder, env, "--fail-on", "never")
    assert (done.returncode, own_files(hub).keys()) == (0, healthy(0).keys()), done.stderr


def test_a_dry_run_asks_the_hub_nothing(hub, env, folder):
    del env["HF_TOKEN"]
    done = push(folder, env, "--dry-run")
    assert (done.returncode, hub.log) == (0, ())
    assert f"2 files, {sum(map(len, healthy(0).values())):,} bytes, to {MODEL}" in done.stderr


IMPOSSIBLE = (
    (2, {"id": "my-model"}),
    (2, {"id": "org/my-model@main"}),
    (3, {"HF_TOKEN": ""}),
    (3, {"HF_TOKEN": READ}),
    (3, {"HF_HUB_OFFLINE": "1"}),
    (3, {"HF_ENDPOINT": "http://127.0.0.1:9"}),
    (2, {"HF_ENDPOINT": "somewhere"}),
)


def test_a_push_that_cannot_be_made_ends_in_a_line_and_sends_nothing(hub, env, folder, subtests):
    for code, changes in IMPOSSIBLE:
        with subtests.test(changes=changes):
            done = push(folder, env | changes, "--quiet", model=changes.get("id", MODEL))
            assert (done.returncode, done.stdout) == (code, "")
            assert done.stderr.count("\n") == 1
            assert all(token not in done.stderr for token in (WRITE, READ, "hf_nobody"))
            assert hub.stored(MODEL) is None
            assert not [one for one in hub.log if one.method != "GET" and one.status == 200]


def test_a_pull_request_and_a_branch_leave_main_as_it_is(hub, env, folder):
    old = {"config.json": b"{}"}
    hub.add(MODEL, old, refs={"dev": old})
    assert push(folder, env, "--create-pr").returncode == 0
    assert push(folder, env, "--revision", "dev").returncode == 0
    assert hub.stored(MODEL) == old
    assert own_files(hub, revision="refs/pr/1") == own_files(hub, revision="dev") == healthy(0)
    absent = push(folder, env, "--revision", "absent")
    assert (absent.returncode, len(requests(hub, "/commit/"))) == (3, 2)


def test_private_files_are_not_sent_to_a_public_repository(hub, env, folder):
    hub.add(MODEL, {})
    assert (push(folder, env, "--private").returncode, hub.stored(MODEL)) == (3, {})
    assert push(folder, env, "--private", model="org/other").returncode == 0
    assert run("org/other", env=env | {"HF_TOKEN": READ}).returncode == 3
    assert run("org/other", env=env).returncode == 0


def test_a_file_that_is_lost_on_the_way_is_named(env, folder):
    (folder / ".gitignore").write_bytes(b"*.txt\n")
    (folder / "vocab.txt").write_bytes(b"a\n")
    done = push(folder, env)
    assert done.returncode == 1
    assert "audit: 'vocab.txt' is not in the commit\n" in done.stderr


def test_a_file_that_is_spoilt_on_the_way_is_named(hub, env, folder):
    def spoil():
        [oid] = hub.intake.objects
        hub.intake.objects[oid] = bytes(len(hub.intake.objects[oid]))

    hub.misbehave(fault=When(do=spoil), path="/lfs/*")
    done = push(folder, env)
    assert done.returncode == 1
    assert f"audit: '{WEIGHTS}' differs on the Hub: its sha256 is " in done.stderr
    assert "bad-header" in done.stdout


def test_files_that_others_left_there_are_audited_with_the_commit(hub, env, folder):
    hub.add(MODEL, {"vocab.txt": b"word\n" * 50})  # more than the embedding has rows
    done = push(folder, env)
    assert (done.returncode, "vocab.txt" in done.stdout) == (1, True), done.stdout


MOMENTS = (
    ("/api/repos/create", CONFIG),
    ("/api/repos/create", WEIGHTS),
    ("*/preupload/*", CONFIG),
    ("/lfs/*", WEIGHTS),
    ("/lfs/*", "added.json"),
)


def test_a_folder_that_changes_before_the_commit_is_not_committed(hub, env, folder, subtests):
    for path, name in MOMENTS:

        def change(file=folder / name):
            with file.open("ab") as changed:
                changed.write(b" ")

        with subtests.test(path=path, name=name):
            hub.clear()
            hub.intake.objects.clear()
            shutil.rmtree(folder)
            write(folder, healthy(0))
            hub.misbehave(fault=When(do=change), path=path)
            done = push(folder, env)
            assert done.returncode == 3
            assert name in done.stderr.splitlines()[-1]
            assert requests(hub, "/commit/") == []


def by_another_file(path, content):
    (path.parent.parent / "new").write_bytes(content)
    (path.parent.parent / "new").replace(path)


def in_place(path, content):
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))


@pytest.mark.filterwarnings("ignore:Use 'content=")  # huggingface_hub's own
@pytest.mark.parametrize("name", ["model.npz", WEIGHTS, CONFIG])
def test_a_file_that_is_replaced_at_any_step_is_not_committed(at_hub, folder, name, subtests):
    """The Hub takes `.npz` without LFS: huggingface_hub reads it when it makes the commit."""
    at_hub.let_write(WRITE)
    steps = {"hub_api": by_another_file, "_progress": in_place, "require_unchanged": in_place}
    for step, change in steps.items():
        with subtests.test(step=step):
            at_hub.clear()
            at_hub.intake.objects.clear()
            shutil.rmtree(folder)
            write(folder, healthy(0))
            is_not_committed(at_hub, folder, name, step, change)


def is_not_committed(at_hub, folder, name, step, change):
    write(folder, {"model.npz": b"a" * 99, "README.md": b"# A model"})
    old = {path.name: path.read_bytes() for path in folder.iterdir()}
    files, work = pushing.files_of(folder), getattr(pushing, step)

    def and_replace(*arguments, **options):
        done = work(*arguments, **options)
        change(folder / name, old[name][:-1] + b"~")
        return done

    def push_with_a_change():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pushing, step, and_replace)
            to = pushing.PushTarget(repository=MODEL, token=WRITE)
            pushing.push(folder, files, to)

    if (step, name) == ("require_unchanged", WEIGHTS):  # in LFS by now, with the listed bytes
        push_with_a_change()
        assert own_files(at_hub) == old
        return
    with pytest.raises(PublishError, match=f"{name}' was replaced or changed|changed since"):
        push_with_a_change()
    assert not own_files(at_hub)


def test_the_audited_files_are_those_that_are_sent(folder):
    """A link that led to other weights while the audit ran is noticed, though it leads back now."""
    files = pushing.files_of(folder)
    audited = [replace(one, state=replace(one.state, inode=1)) for one in files.files[:1]]
    with pytest.raises(PublishError, match="changed since its audit began"):
        pushing.require_unchanged(folder, files, (*audited, *files.files[1:]))
    pushing.require_unchanged(folder, files, files.files)


@pytest.mark.slow
def test_a_push_that_is_killed_leaves_the_old_commit_or_the_whole_new_one(hub, env, folder):
    old = {"config.json": b"{}", "old.txt": b"old"}
    seen, killed, step = [], True, 1 if IS_THOROUGH else 3
    while killed:
        model = f"org/killed-{len(seen)}"
        hub.add(model, old)
        hub.behave()
        process = started("push", folder.name, model, env=env, cwd=folder.parent)
        kill = When(do=lambda to=process: os.kill(to.pid, signal.SIGKILL))
        hub.misbehave(fault=kill, skip=step * len(seen), times=1)
        process.communicate()
        killed = process.returncode == -signal.SIGKILL
        assert killed or process.returncode == 0
        seen.append(hub.stored(model))
    assert all(files in (old, old | healthy(0)) for files in seen)
    assert seen[0] == old
    assert seen[-1] == old | healthy(0)


def test_an_answer_that_is_lost_leaves_the_commit_in_doubt(hub, env, folder):
    hub.misbehave(fault=Reset(), path="*/commit/*")
    done = push(folder, env)
    assert done.returncode == 3
    assert done.stderr.endswith("; whether the commit was made is not known\n")
