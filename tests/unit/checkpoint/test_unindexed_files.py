"""An index of shards that are not there, beside weights that are: found, and read all the same."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.checkpoints import config_bytes, expect, stored_by
from support.hub import Hub
from support.sharding import (
    CONFIG,
    INDEX,
    Table,
    alarms,
    kinds,
    pointer,
    reindexed,
    shard_names,
    sharded,
    write,
)

from auditor import Report, audit
from auditor.checkpoint.snapshot_writer import dump
from auditor.downloader.fetching import fetch

BERT = expect("BertModel")
TABLE: Table = {tensor.name: (tensor.dtype, tensor.shape) for tensor in stored_by(BERT)}
NAMES = list(TABLE)
CONFIG_BYTES = config_bytes(architectures=["BertModel"])
OF_TWO, OF_THREE = shard_names(2), shard_names(3)


def adapter() -> Table:
    return {f"base_model.{name}.lora_A.weight": ("F32", (2, 4)) for name in NAMES[:3]}


def split(folder: Path, count: int, *, stem: str = "model", some: int | None = None) -> None:
    """The table in shards that no index names."""
    for number, name in enumerate(shard_names(count, stem)[:some]):
        write(folder / name, {key: TABLE[key] for key in NAMES[number::count]})


def torch_file(path: Path, names: list[str]) -> None:
    torch = pytest.importorskip("torch")
    torch.save({name: torch.zeros(TABLE[name][1]) for name in names}, path)


def torch_shards(folder: Path) -> None:
    for number, name in enumerate(shard_names(2, "pytorch_model", "bin")):
        torch_file(folder / name, NAMES[number::2])


def without(*absent: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        for name in absent:
            (folder / name).unlink()

    return remove


Spoil = Callable[[Path], object]

# What lies beside an index of two shards that are not there, and holds the whole model.
WHOLE: dict[str, Spoil] = {
    "three shards": lambda folder: split(folder, 3),
    "three shards of another stem": lambda folder: split(folder, 3, stem="weights"),
    "three shards, and one of four": lambda folder: (split(folder, 4, some=1), split(folder, 3)),
    "a lone file of another name": lambda folder: write(folder / "weights.safetensors", TABLE),
    "one torch file": lambda folder: torch_file(folder / "pytorch_model.bin", NAMES),
    "torch shards": torch_shards,
    "a lone torch file of another name": lambda folder: torch_file(folder / "best.pt", NAMES),
    "a lone file beside a variant": lambda folder: (
        write(folder / "weights.safetensors", TABLE),
        write(folder / "model.fp16.safetensors", TABLE),
    ),
    "a lone file beside an adapter": lambda folder: (
        write(folder / "weights.safetensors", TABLE),
        write(folder / "adapter_model.safetensors", adapter()),
    ),
    "three shards beside the original": lambda folder: (
        split(folder, 3),
        write(folder / "consolidated.safetensors", {"tok_embeddings.weight": ("F32", (11, 4))}),
    ),
}

# What lies there and is not the model.
STRANGE: dict[str, Spoil] = {
    "the original": lambda folder: write(folder / "consolidated.safetensors", TABLE),
    "a variant": lambda folder: write(folder / "model.fp16.safetensors", TABLE),
    "an adapter": lambda folder: write(folder / "adapter_model.safetensors", adapter()),
    "an adapter of another name": lambda folder: write(folder / "lora.safetensors", adapter()),
    "averaged weights": lambda folder: write(folder / "ema.safetensors", TABLE),
    "two files that may be it": lambda folder: (
        write(folder / "a.safetensors", TABLE),
        write(folder / "b.safetensors", TABLE),
    ),
    "a file that is none of torch's": lambda folder: (folder / "words.bin").write_bytes(b"words"),
    "a GGUF file": lambda folder: (folder / "model.gguf").write_bytes(b"GGUF"),
}

# Files that are not weights of a format that is read.
NOTHING: dict[str, Spoil] = {
    "nothing": lambda folder: folder,
    "an optimizer": lambda folder: torch_file(folder / "optimizer.pt", NAMES),
    "arguments of the training": lambda folder: torch_file(folder / "training_args.bin", NAMES),
    "weights for TensorFlow": lambda folder: (folder / "tf_model.h5").write_bytes(b"x"),
    "a model in a folder of its own": lambda folder: sharded(folder / "onnx", TABLE, None),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An index of two shards, without them."""
    made = sharded(tmp_path / "m", TABLE, CONFIG_BYTES)
    without(*OF_TWO)(made)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("what", WHOLE)
def test_what_is_there_is_read_and_accounted_for(what: str, folder: Path) -> None:
    WHOLE[what](folder)
    report = audit(str(folder))
    assert isinstance(report, Report)
    assert kinds(report) == ["bad-index"]
    (finding,) = alarms(report)
    assert finding.hidden == ()
    assert "2 of the 2 shards" in finding.reason
    assert "which it does not name" in finding.reason
    assert (report.residual, report.observed.parameters) == (0, BERT.parameters)
    assert "once more" not in "".join(one.reason for one in report.findings)


@pytest.mark.parametrize("what", STRANGE)
def test_what_is_not_the_model_is_not_read_as_if_it_were(what: str, folder: Path) -> None:
    STRANGE[what](folder)
    report = audit(str(folder))
    assert kinds(report) == ["bad-index"]
    (finding,) = alarms(report)
    assert set(finding.names) == set(TABLE)
    assert (report.residual, report.observed.tensors) == (None, len(TABLE))
    besides = [one for one in report.findings if one.kind == "other-weights"]
    assert len([name for one in besides for name in one.names]) == len(list(folder.iterdir())) - 2
    assert "once more" not in "".join(one.reason for one in besides)


@pytest.mark.parametrize("what", NOTHING)
def test_an_index_without_any_weights_is_audited_by_names(what: str, folder: Path) -> None:
    NOTHING[what](folder)
    report = audit(str(folder))
    assert (kinds(report), report.residual) == (["bad-index"], None)
    assert report.observed.tensors == len(TABLE)


@pytest.mark.parametrize("what", [*WHOLE, *STRANGE])
def test_a_copy_that_lacks_one_shard_is_audited_alone(what: str, tmp_path: Path) -> None:
    made = sharded(tmp_path / "m", TABLE, CONFIG_BYTES)
    without(OF_TWO[1])(made)
    {**WHOLE, **STRANGE}[what](made)
    report = audit(str(made))
    hidden = {t.name for one in report.findings if one.kind == "bad-index" for t in one.hidden}
    if "three shards" in what and "stem" not in what:
        assert hidden == set()
        assert kinds(report) == ["bad-index", "duplicate"]
    else:
        assert hidden == set(NAMES[1::2])
        assert kinds(report) == ["bad-index"]
    assert report.residual == 0


def test_pointers_are_weights(folder: Path) -> None:
    """A clone without Git LFS of a model that was pushed again."""
    split(folder, 3)
    for name in OF_THREE:
        pointer(folder / name)
    report = audit(str(folder))
    assert kinds(report) == ["bad-header"] * 3 + ["bad-index"]
    assert report.residual == 0
    hidden = [tensor.name for one in alarms(report) for tensor in one.hidden]
    assert sorted(hidden) == sorted(TABLE)


def test_what_no_file_holds_stays_hidden(folder: Path) -> None:
    """Of three shards two are there."""
    split(folder, 3, some=2)
    report = audit(str(folder))
    (finding,) = alarms(report)
    assert {tensor.name for tensor in finding.hidden} == set(NAMES[2::3])
    assert report.residual == 0


def test_an_index_of_other_names_hides_nothing_that_is_stored(folder: Path) -> None:
    split(folder, 3)
    reindexed(folder, renamed={name: f"old.{name}" for name in NAMES})
    report = audit(str(folder))
    assert {one.kind for one in alarms(report)} == {"bad-index"}
    assert all(not one.hidden for one in alarms(report))
    assert report.residual == 0


def test_an_index_given_by_name_is_its_folders(folder: Path) -> None:
    report = audit(str(folder / INDEX))
    assert (kinds(report), report.residual) == (["bad-index"], None)
    split(folder, 3)
    report = audit(str(folder / INDEX))
    assert (kinds(report), report.residual) == (["bad-index"], 0)
    assert report.observed.parameters == BERT.parameters


def test_torch_copies_are_not_compared_with_files_that_are_not_all_there(tmp_path: Path) -> None:
    made = sharded(tmp_path / "m", TABLE, CONFIG_BYTES)
    torch_file(made / "pytorch_model.bin", NAMES)
    assert kinds(audit(str(made))) == []
    without(OF_TWO[0])(made)
    report = audit(str(made))
    assert kinds(report) == ["bad-index"]
    said = "'pytorch_model.bin': not compared, for the audited files are not all there"
    assert said in report.unchecked


@pytest.mark.parametrize("what", ["three shards", "a lone file of another name", "torch shards"])
def test_a_snapshot_gives_the_same_report(what: str, folder: Path, tmp_path: Path) -> None:
    WHOLE[what](folder)
    before = audit(str(folder), companions=False)
    file = tmp_path / "m.json"
    file.write_bytes(dump(fetch(str(folder)), "m.json"))
    shutil.rmtree(folder)
    after = audit(str(file))
    for field in ("observed", "modules", "findings", "unchecked", "residual"):
        assert getattr(after, field) == getattr(before, field)


@pytest.mark.slow
@pytest.mark.parametrize("what", [*WHOLE, *STRANGE])
def test_the_hub_decides_by_its_listing(what: str, folder: Path, at_hub: Hub) -> None:
    {**WHOLE, **STRANGE}[what](folder)
    local = audit(str(folder))
    at_hub.add("o/m", {path.name: path.read_bytes() for path in folder.iterdir()})
    report = audit("o/m")
    assert (kinds(report), report.residual) == (kinds(local), local.residual)
    assert report.observed.parameters == local.observed.parameters


def test_a_repository_of_an_index_alone_lacks_its_shards(folder: Path, at_hub: Hub) -> None:
    at_hub.add("o/m", {name: (folder / name).read_bytes() for name in (INDEX, CONFIG)})
    assert kinds(audit("o/m")) == ["bad-index"]


def test_a_component_of_a_pipeline_is_read_in_the_same_way(tmp_path: Path) -> None:
    pipeline = {"_class_name": "P", "text_encoder": ["transformers", "BertModel"]}
    (tmp_path / "model_index.json").write_text(json.dumps(pipeline))
    made = sharded(tmp_path / "text_encoder", TABLE, CONFIG_BYTES)
    without(*OF_TWO)(made)
    split(made, 3)
    report = audit(str(tmp_path))
    assert kinds(report) == ["bad-index"]
    assert (report.residual, report.observed.parameters) == (0, BERT.parameters)
