"""What `audit fix` does not touch, and what it leaves where it fails: a line, and the old files."""

import json
import os
import shutil
from pathlib import Path

import pytest
from support.mounts import mounted, remount
from support.running import run, started
from support.stopped_fixes import contents_of, spoiled_folder

INDEX = "model.safetensors.index.json"
SHARD = "model-00001-of-00002.safetensors"


@pytest.fixture
def folder(tmp_path):
    return spoiled_folder(tmp_path / "model", 2)


def refused(folder, *options, **environment):
    """The one line of a fix that did nothing."""
    before = contents_of(folder)
    done = run("fix", str(folder), "--apply", *options, env={**os.environ, **environment})
    assert done.returncode == 3, done.stdout + done.stderr
    assert contents_of(folder) == before
    assert not [path for path in folder.parent.iterdir() if ".fixed" in path.name]
    [line] = done.stderr.splitlines()
    return line


def test_the_plan_alone_changes_nothing_and_exits_with_1(folder):
    before = contents_of(folder)
    done = run("fix", str(folder))
    assert (done.returncode, contents_of(folder)) == (1, before)
    assert "wrapper-prefix" in done.stdout
    assert "num_hidden_layers: 1 -> 2" in done.stdout
    assert done.stderr.startswith("audit: dry run: nothing was written; to write it: audit fix ")


def test_the_plan_is_to_be_had_as_json(folder):
    done = run("fix", str(folder), "--format", "json")
    said = json.loads(done.stdout)
    assert [one["cause"] for one in said["causes"]] == ["wrapper-prefix", "config-field"]
    assert (said["applied"], said["written"], said["after"]["verdict"]) == (False, None, "clean")
    files = {one["file"]: one for one in said["files"]}
    assert files["config.json"]["values"] == [
        {"path": ["num_hidden_layers"], "before": 1, "after": 2}
    ]
    assert all(old == f"module.{new}" for old, new in files[SHARD]["renames"])


def test_links_are_copied_as_files_and_the_files_behind_them_stay(folder, tmp_path):
    (folder / SHARD).rename(folder / "blob")
    (folder / SHARD).symlink_to("blob")
    os.link(folder / "config.json", tmp_path / "other.json")
    before = (folder / "blob").read_bytes(), (tmp_path / "other.json").read_bytes()
    done = run("fix", str(folder), "--apply")
    assert done.returncode == 0, done.stderr
    assert ((folder / "blob").read_bytes(), (tmp_path / "other.json").read_bytes()) == before
    assert not (tmp_path / "model.fixed" / SHARD).is_symlink()


def test_a_folder_of_the_cache_is_fixed_outside_of_it(folder, tmp_path):
    hub = tmp_path / "home" / "hub"
    snapshot = hub / "models--o--n" / "snapshots" / ("a" * 40)
    snapshot.parent.mkdir(parents=True)
    shutil.move(folder, snapshot)
    assert "--to" in refused(snapshot, HF_HOME=str(tmp_path / "home"))
    env = {**os.environ, "HF_HOME": str(tmp_path / "home")}
    done = run("fix", str(snapshot), "--apply", "--to", str(tmp_path / "new"), env=env)
    assert done.returncode == 0, done.stderr
    assert run(str(tmp_path / "new"), "--quiet").returncode == 0


def test_what_exists_is_not_replaced(folder, tmp_path):
    for name in ("model.fixed", "model.fixed.partial"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious").write_text("mine")
        before = contents_of(folder)
        done = run("fix", str(folder), "--apply")
        assert (done.returncode, contents_of(folder)) == (3, before)
        assert f"{name}' exists: remove it" in done.stderr
        assert contents_of(tmp_path / name) == {"precious": b"mine"}
        shutil.rmtree(tmp_path / name)
    assert "is in the folder itself" in refused(folder, "--to", str(folder / "new"))


def test_with_link_unchanged_files_take_no_space(folder, tmp_path):
    (folder / "sub").mkdir()
    (folder / "sub" / "notes.md").write_text("notes")
    assert run("fix", str(folder), "--apply", "--link").returncode == 0
    fixed = tmp_path / "model.fixed"
    assert (fixed / "sub" / "notes.md").samefile(folder / "sub" / "notes.md")
    assert not (fixed / "config.json").samefile(folder / "config.json")
    assert run("fix", str(folder), "--link").returncode == 2


def test_what_is_no_folder_is_a_matter_of_usage(folder):
    for what in (str(folder / SHARD), "bert-base-chinese", str(folder / "nowhere")):
        done = run("fix", what)
        assert (done.returncode, done.stdout) == (2, "")
        assert "takes a folder" in done.stderr


def test_a_torch_file_is_not_rewritten(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file  # noqa: PLC0415 - imports torch

    folder = spoiled_folder(tmp_path / "model", 1)
    [shard] = folder.glob("*.safetensors")
    torch.save(load_file(shard), folder / "pytorch_model.bin")
    shard.unlink()
    (folder / INDEX).unlink()
    before = contents_of(folder)
    done = run("fix", str(folder), "--apply")
    assert (done.returncode, contents_of(folder)) == (1, before)  # the config is not mended alone
    assert "cannot be fixed here: wrapper-prefix" in done.stdout
    assert "pytorch_model.bin is not a safetensors file" in done.stdout


def test_a_full_disk_leaves_nothing_of_the_new_folder(folder, tmp_path):
    with mounted(tmp_path / "small", "64k") as place:
        small = shutil.copytree(folder, place / "model")
        (place / "rest").write_bytes(b"")
        fill(place / "rest")
        assert "No space left on device; nothing is left of it" in refused(small)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass


def test_a_read_only_folder_is_left_as_it_is(folder, tmp_path):
    with mounted(tmp_path / "fixed", "1m") as place:
        there = shutil.copytree(folder, place / "model")
        remount(place, "ro")
        assert "Read-only file system" in refused(there)
        remount(place, "rw")


# --- two at once --------------------------------------------------------------------------------


def test_two_at_once_do_not_meet(folder):
    both = [started("fix", str(folder), "--apply", env=os.environ) for _ in range(2)]
    ends = [process.communicate() for process in both]
    assert {process.returncode for process in both} <= {0, 3}, ends
    assert run(f"{folder}.fixed", "--quiet").returncode == 0


# --- several models, or one with what belongs to it ----------------------------------------------


def modules(folder, *entries):
    manifest = [
        {"idx": at, "name": str(at), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for at, (path, kind) in enumerate(entries)
    ]
    (folder / "modules.json").write_text(json.dumps(manifest))


def test_the_model_of_a_sentence_transformer_is_mended_in_its_folder(folder):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    pooling = folder / "1_Pooling"
    pooling.mkdir()
    (pooling / "config.json").write_text(json.dumps({"word_embedding_dimension": 4}))
    modules(folder, ("", "Transformer"), ("1_Pooling", "Pooling"))
    done = run("fix", str(folder), "--apply")
    assert done.returncode == 0, done.stderr
    assert run(f"{folder}.fixed", "--quiet").returncode == 0


def test_of_several_models_each_is_mended_by_itself(folder):
    spoiled_folder(folder / "2_Dense", 1)
    modules(folder, ("", "Transformer"), ("2_Dense", "Dense"))
    assert "holds several models" in refused(folder)
