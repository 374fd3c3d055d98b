"""The listing of a folder: each entry is a file of the model, or skipped and named."""

import os
import pickle
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.examples import examples

from auditor import audit
from auditor.checkpoint.selecting import with_companions
from auditor.checkpoint.skipped import SkippedEntry, SkipReason, skipped_lines
from auditor.checkpoint.snapshot_reader import load
from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader import folder_listing, local_folder
from auditor.downloader.fetching import fetch
from auditor.downloader.folder_listing import list_folder
from auditor.errors import Reason, SourceError

SECRET = b'{"secret": "hf_abcdefgh"}'
CONFIG, WEIGHTS = "config.json", "model.safetensors"
NAMES = ".git .hid .cache/huggingface .cache/huggingface/download node_modules bin "
NAMES += "__pycache__ site-packages Scripts sub venv \N{BLACK SMILING FACE} .cache"
FOLDERS = st.sampled_from(NAMES.split())
FILES = st.sampled_from(("x.pkl", "pyvenv.cfg", "y.pkl", "x.metadata", ".gitignore", ".z.pkl"))
KINDS = st.sampled_from(("file", "pipe", "inside", "outside", "chain", "to folder", "broken"))
TREES = st.lists(
    st.tuples(st.lists(FOLDERS, max_size=4).map(tuple), FILES, KINDS), min_size=1, max_size=8
)


class Executed:
    """What a pickle makes of it: a call."""

    def __reduce__(self):
        return os.getcwd, ()


PICKLE = pickle.dumps(Executed())


def model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    tensors = {one.name: ("F32", one.shape) for one in stored_by(expect("BertModel"))}
    (folder / WEIGHTS).write_bytes(safetensors_bytes(tensors))
    (folder / CONFIG).write_bytes(config_bytes(architectures=["BertModel"], dtype="float32"))
    return folder


def plant(folder: Path, name: str, kind: str) -> None:
    path, secret = folder / name, folder.parent / "secret.pkl"
    secret.write_bytes(PICKLE)
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(path):
        return
    if kind == "file":
        path.write_bytes(PICKLE)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "chain":
        path.with_name(f"{path.name}.link").symlink_to(secret)
        path.symlink_to(f"{path.name}.link")
    else:
        targets = {"inside": folder / CONFIG, "outside": secret, "to folder": folder}
        path.symlink_to(targets.get(kind, "nothing"))


def entries(folder: Path) -> list[str]:
    """All files of a folder and all links, as `find` lists them."""
    found = [Path(place, one) for place, inner, names in os.walk(folder) for one in inner + names]
    return [
        path.relative_to(folder).as_posix()
        for path in found
        if path.is_symlink() or not path.is_dir()
    ]


def is_skipped(name: str, skipped: Iterable[SkippedEntry]) -> bool:
    """Whether an entry stands for the name; a download's notes do not stand for other files."""
    return any(
        (one.reason is not SkipReason.DOWNLOAD or name.endswith((".gitignore", ".metadata")))
        and (name == one.name or name.startswith(f"{one.name}/"))
        for one in skipped
    )


@examples(100)
@given(tree=TREES)
def test_each_entry_is_a_file_of_the_folder_or_skipped_and_named(tmp_path_factory, tree):
    folder = model(tmp_path_factory.mktemp("x") / "model")
    for folders, name, kind in tree:
        plant(folder, "/".join((*folders, name)), kind)
    listing = list_folder(folder)
    files = {file.name for file in listing.files}
    for name in entries(folder):
        assert (name in files) != is_skipped(name, listing.skipped), name
    assert all((folder / name).resolve().is_relative_to(folder.resolve()) for name in files)
    outcome = audit(str(folder))
    unsafe = {name for one in outcome.findings if one.kind == "unsafe" for name in one.names}
    assert unsafe == {name for name in files if (folder / name).read_bytes() == PICKLE}
    named = "; ".join(outcome.unchecked)
    assert all(line in named for line in skipped_lines(listing.skipped))


def test_a_link_out_of_the_folder_is_named_and_never_read(subtests, tmp_path):
    for name, kind in [("tokenizer_config.json", "outside"), ("training_args.bin", "chain")]:
        with subtests.test(name=name, kind=kind):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            folder = model(place / "model")
            plant(folder, name, kind)
            (place / "secret.pkl").write_bytes(SECRET)
            snapshot = fetch(str(folder), choose=with_companions)
            content = dump(snapshot)
            assert b"hf_abcdefgh" not in content
            assert load(content, "s").skipped == snapshot.skipped
            outcome = audit(str(folder))
            assert outcome.verdict == "clean"
            assert f"'{name}': not read, a link out of the folder" in outcome.unchecked


def test_a_linked_folder_may_be_the_argument_and_links_may_come_back(tmp_path):
    folder = model(tmp_path / "model")
    (folder / "README.md").symlink_to("../model/config.json")
    (tmp_path / "linked").symlink_to("model")
    listing = list_folder(tmp_path / "linked")
    assert [file.name for file in listing.files] == ["README.md", CONFIG, WEIGHTS]
    assert listing.skipped == ()


def test_what_an_audit_needs_and_a_link_has_is_not_audited(subtests, tmp_path):
    """Weights on another disk: the user gives their folder, or copies them."""
    for name, others in [
        (WEIGHTS, {}),
        ("model-00001-of-00001.safetensors", {"model.safetensors.index.json": None}),
        ("adapter_model.safetensors", {"adapter_config.json": b"{}"}),
        (CONFIG, {WEIGHTS: None}),
    ]:
        with subtests.test(name=name, others=others):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            folder = model(place / "model")
            contents = {
                WEIGHTS: (folder / WEIGHTS).read_bytes(),
                "model.safetensors.index.json": f'{{"weight_map": {{"a": "{name}"}}}}'.encode(),
            }
            (folder / WEIGHTS).unlink()
            (folder / name).unlink(missing_ok=True)
            for other, content in others.items():
                (folder / other).write_bytes(content or contents[other])
            (place / "elsewhere").write_bytes(contents[WEIGHTS])
            (folder / name).symlink_to("../elsewhere")
            outcome = audit(str(folder))
            assert (outcome.verdict, outcome.reason) == ("unaudited", Reason.UNREADABLE)
            assert f"{name}' is a link out of the folder" in outcome.detail
            if name != CONFIG:
                assert fetch(str(folder / name)) if name.startswith("model.") else True


def test_the_blobs_of_a_cache_are_files_of_each_folder_that_links_to_them(tmp_path):
    folder, blobs = model(tmp_path / "model"), tmp_path / "hub" / "models--org--name" / "blobs"
    blobs.mkdir(parents=True)
    (folder / WEIGHTS).rename(blobs / ("a" * 64))
    (folder / WEIGHTS).symlink_to(blobs / ("a" * 64))
    assert audit(str(folder)).verdict == "clean"
    (blobs / "b").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_bytes(SECRET)
    (folder / "NOTES.md").symlink_to(blobs / "b")
    assert list_folder(folder).skipped == (SkippedEntry("NOTES.md", SkipReason.OUTSIDE),)


def test_what_a_download_and_git_keep_changes_no_verdict(tmp_path):
    folder = model(tmp_path / "model")
    names = (".git/HEAD", ".cache/huggingface/.gitignore", ".cache/huggingface/CACHEDIR.TAG")
    names += tuple(f".cache/huggingface/download/sub/a.json.{end}" for end in ("lock", "metadata"))
    for name in names:
        plant(folder, name, "file")
        (folder / name).write_bytes(b"*")
    outcome = audit(str(folder))
    assert outcome.verdict == "clean"
    assert [line.partition(":")[0] for line in outcome.unchecked[1:]] == [
        "'.git'",
        "'.cache/huggingface'",
    ]


def test_links_in_a_long_chain_and_deep_folders_are_not_followed(tmp_path):
    folder = model(tmp_path / "model")
    for at in range(600):
        (folder / f"{at}.bin").symlink_to(f"{at + 1}.bin")
    (folder / "600.bin").write_bytes(PICKLE)
    skipped = {entry.reason for entry in list_folder(folder).skipped}
    assert skipped == {SkipReason.BROKEN_LINK}
    (folder / "/".join("d" * 70)).mkdir(parents=True)
    with pytest.raises(SourceError, match="folders more than 64 deep") as raised:
        list_folder(folder)
    assert raised.value.reason is Reason.TOO_LARGE


def test_a_cache_with_links_to_other_folders_is_not_read(subtests, tmp_path):
    for name in ["refs/main", f"snapshots/{'a' * 40}"]:
        with subtests.test(name=name):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            cached = place / "models--org--name"
            model(cached / "snapshots" / ("a" * 40))
            (cached / "refs").mkdir()
            (cached / "refs" / "main").write_text("a" * 40)
            assert audit(str(cached)).verdict == "clean"
            (cached / name).rename(place / "secret")
            (cached / name).symlink_to(place / "secret")
            outcome = audit(str(cached))
            assert (outcome.verdict, outcome.reason) == ("unaudited", Reason.UNREADABLE)
            assert "is a link, expected what huggingface_hub writes" in outcome.detail


def test_an_adapter_has_no_other_programs_config_read(tmp_path):
    adapter, other = tmp_path / "adapter", tmp_path / ".docker"
    other.mkdir()
    adapter.mkdir()
    settings = f'{{"peft_type": "LORA", "base_model_name_or_path": "{other}"}}'
    (adapter / "adapter_config.json").write_text(settings)
    (adapter / "adapter_model.safetensors").write_bytes(safetensors_bytes({"a": ("F32", (1,))}))
    (other / CONFIG).write_bytes(SECRET)
    base = fetch(str(adapter)).base
    assert (base.config, base.reason) == (None, Reason.NO_CONFIG)
    (other / CONFIG).write_bytes(config_bytes(architectures=["BertModel"]))
    assert fetch(str(adapter)).base.config is not None


# --- replaced while the folder is read ------------------------------------------------------------


def by_link(path: Path) -> None:
    secret = path.parent.parent / "secret"
    secret.write_bytes(SECRET)
    path.unlink()
    path.symlink_to(secret)


def by_another_file(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    other.replace(path)


@pytest.mark.parametrize(
    ("name", "replace"),
    [
        (CONFIG, by_link),
        (WEIGHTS, by_another_file),
        ("tokenizer_config.json", by_link),
        ("optimizer.pt", by_another_file),
    ],
)
def test_a_file_is_read_only_in_the_state_in_which_it_was_listed(
    tmp_path, monkeypatch, name, replace
):
    folder = model(tmp_path / "model")
    plant(folder, "optimizer.pt", "file")
    (folder / "tokenizer_config.json").write_bytes(b"{}")

    def listed_then_replaced(place):
        listing = list_folder(place)
        replace(folder / name)
        return listing

    monkeypatch.setattr(local_folder, "list_folder", listed_then_replaced)
    read = partial(fetch, str(folder), choose=with_companions)
    if name in {CONFIG, WEIGHTS}:
        with pytest.raises(SourceError, match="was replaced or changed since it was listed"):
            read()
        return
    snapshot = read()
    assert b"hf_abcdefgh" not in dump(snapshot)
    [companion] = snapshot.companions
    assert (companion.content is None) == (name == companion.name)
    assert bool(snapshot.pickles) == (name != "optimizer.pt")


def test_a_folder_that_becomes_a_link_while_it_is_listed_is_skipped(tmp_path, monkeypatch):
    folder, elsewhere = model(tmp_path / "model"), tmp_path / "elsewhere"
    plant(folder, "sub/x.pkl", "file")
    plant(elsewhere, "secret.json", "file")
    scan = os.scandir

    def scandir(path):
        if path.endswith("/sub/"):
            (folder / "sub").rename(tmp_path / "moved")
            (folder / "sub").symlink_to(elsewhere)
        return scan(path)

    monkeypatch.setattr(folder_listing.os, "scandir", scandir)
    listing = list_folder(folder)
    assert [file.name for file in listing.files] == [CONFIG, WEIGHTS]
    assert listing.skipped == (SkippedEntry("sub", SkipReason.OUTSIDE),)
