"""Pickles beside the weights: followed in a folder, named as not checked on the Hub."""

import json
import random

import pytest
from support.builders import safetensors_bytes
from support.checkpoints import config_bytes, expect, stored_by
from support.torch_files import torch_bytes

from auditor import audit
from auditor.downloader import assemble

TENSORS = {one.name: (one.dtype, one.shape) for one in stored_by(expect("BertModel"))}
SOUND = {
    "config.json": config_bytes(architectures=["BertModel"]),
    "model.safetensors": safetensors_bytes(TENSORS),
}
CALL = b"\x80\x02cposix\nsystem\nX\2\0\0\0id\x85R."
HARMLESS = b"\x80\x02}."


def folder(path, **files):
    for name, content in {**SOUND, **files}.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return str(path)


def unsafe_files(outcome) -> list[str]:
    return [one.file for one in outcome.findings if one.kind == "unsafe"]


def not_read(outcome) -> list[str]:
    return [line for line in outcome.unchecked if "a pickle may run code" in line]


def test_a_pickle_in_a_folder_is_followed(tmp_path):
    outcome = audit(folder(tmp_path, **{"a/head.pkl": CALL, "optimizer.pt": HARMLESS}))
    assert unsafe_files(outcome) == ["a/head.pkl"]
    assert not_read(outcome) == []
    assert outcome.residual == 0


def test_a_pickle_on_the_hub_is_not_read_and_named_as_not_checked(at_hub):
    more = {"training_args.bin": CALL, "a/rng_state_0.pth": HARMLESS}
    at_hub.add("org/plain", SOUND)
    at_hub.add("org/more", {**SOUND, **more})
    plain, outcome = audit("org/plain"), audit("org/more")
    assert outcome.fetched.requests == plain.fetched.requests
    [line] = not_read(outcome)
    assert "training_args.bin" in line
    assert "rng_state_0.pth" in line
    assert outcome.verdict == "clean"


def test_a_torch_copy_on_the_hub_has_one_line(at_hub):
    at_hub.add("org/name", {**SOUND, "pytorch_model.bin": torch_bytes(TENSORS)})
    outcome = audit("org/name")
    [line] = [line for line in outcome.unchecked if "pytorch_model.bin" in line]
    assert "nor followed" in line


def test_pickles_beyond_the_bound_are_named_as_not_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(assemble, "_MOST_PICKLES", 1)
    outcome = audit(folder(tmp_path, **{"a.pkl": CALL, "b.pkl": CALL}))
    assert unsafe_files(outcome) == ["a.pkl"]
    [line] = not_read(outcome)
    assert "'b.pkl'" in line


def test_a_weight_file_that_was_followed_is_not_called_unopened(tmp_path):
    outcome = audit(folder(tmp_path, **{"variant.bin": HARMLESS, "variant.onnx": b"x"}))
    reasons = {one.files: one.reason for one in outcome.findings if one.kind == "other-weights"}
    assert reasons["variant.bin",].endswith("it is not part of the audited set")
    assert reasons["variant.onnx",].endswith("it was not opened")


def test_each_model_has_its_own_folder_and_the_repository_the_rest(tmp_path):
    index = {"_class_name": "P", "text_encoder": ["transformers", "BertModel"]}
    files = {f"text_encoder/{name}": content for name, content in SOUND.items()}
    files |= {"text_encoder/a.pkl": CALL, "logs/b.pkl": CALL, "c.pt": CALL}
    for name, content in {**files, "model_index.json": json.dumps(index).encode()}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    whole = audit(str(tmp_path))
    assert sorted(unsafe_files(whole)) == ["c.pt", "logs/b.pkl"]
    [part] = whole.parts
    assert unsafe_files(part) == ["text_encoder/a.pkl"]
    assert not_read(whole) == []


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_the_trainer_leaves_in_a_folder_is_not_unsafe(tmp_path):
    """Arguments, states of random numbers, of an optimizer and of a schedule."""
    import numpy as np  # noqa: PLC0415 - the oracle's
    import torch  # noqa: PLC0415 - as above
    from transformers import Seq2SeqTrainingArguments, TrainingArguments  # noqa: PLC0415 - as above

    model = torch.nn.Linear(2, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (step + 1))
    folder(tmp_path)
    states = {
        "python": random.getstate(),
        "numpy": np.random.get_state(),  # noqa: NPY002 - what the Trainer saves
        "cpu": torch.random.get_rng_state(),
    }
    for name, value in {
        "training_args.bin": TrainingArguments(str(tmp_path / "out")),
        "checkpoint-1/training_args.bin": Seq2SeqTrainingArguments(str(tmp_path / "out")),
        "checkpoint-1/rng_state.pth": states,
        "checkpoint-1/optimizer.pt": optimizer.state_dict(),
        "checkpoint-1/scheduler.pt": schedule.state_dict(),
        "checkpoint-1/scaler.pt": torch.amp.GradScaler("cpu").state_dict(),
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        torch.save(value, tmp_path / name)
    outcome = audit(str(tmp_path))
    assert (outcome.verdict, unsafe_files(outcome), not_read(outcome)) == ("clean", [], [])
