"""Bytes of two checkpoints: the order of tensors and shards changes nothing, a bit does.

Other comparisons of folders are in tests/cases/comparing.
"""

import tempfile
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.value_files import write_model

import auditor
from auditor.downloader.local_file import BLOCK

NAMES = [
    *(f"model.layers.{n}.{part}.weight" for n in range(2) for part in ("q_proj", "up_proj")),
    "model.embed_tokens.weight",
    "model.norm.weight",
]
TENSORS = {
    name: np.random.default_rng(seed).standard_normal((8, 4), np.float32)
    for seed, name in enumerate(NAMES)
}


def in_order(names):
    return {name: TENSORS[name] for name in names}


@given(order=st.permutations(NAMES), shards=st.integers(1, 4))
def test_the_order_of_tensors_and_shards_changes_nothing(order, shards):
    with TemporaryDirectory() as place:
        first = write_model(Path(place, "first"), TENSORS)
        second = write_model(Path(place, "second"), in_order(order), shards)
        found = auditor.diff(first, second)
    assert found.same
    assert not found.not_compared
    assert found.summary.startswith(f"B is A: the same bytes in all {len(NAMES)}")


@given(changed=st.sets(st.sampled_from(NAMES), min_size=1), data=st.data())
def test_exactly_the_tensors_with_another_bit_are_named(changed, data):
    tensors = {name: one.copy() for name, one in TENSORS.items()}
    for name in changed:
        bits = tensors[name].view(np.uint32).reshape(-1)
        place = data.draw(st.integers(0, bits.size - 1))
        bits[place] ^= np.uint32(1) << np.uint32(data.draw(st.integers(0, 31)))
    with TemporaryDirectory() as place:
        first = write_model(Path(place, "first"), TENSORS)
        second = write_model(Path(place, "second"), tensors, shards=2)
        found = auditor.diff(first, second)
    assert not found.same
    assert set(found.bytes.other) == changed
    assert set(found.bytes.equal) == set(NAMES) - changed
    assert f"other numbers in {len(changed)} of {len(NAMES)}" in found.summary


def test_a_difference_in_any_block_is_found(subtests, tmp_path):
    for at in [0, BLOCK // 4 - 1, BLOCK // 4, 2 * BLOCK // 4]:
        with subtests.test(at=at):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            numbers = np.zeros(2 * BLOCK // 4 + 1, np.float32)
            other = numbers.copy()
            other[at] = 1
            first = write_model(place / "first", {"a.weight": numbers})
            second = write_model(place / "second", {"a.weight": other})
            assert auditor.diff(first, second).bytes.other == ("a.weight",)


def test_tensors_under_another_prefix_are_compared(tmp_path):
    first = write_model(tmp_path / "first", TENSORS)
    tensors = {f"module.{name}": one for name, one in TENSORS.items()}
    tensors[f"module.{NAMES[0]}"] = TENSORS[NAMES[0]] + 1
    found = auditor.diff(first, write_model(tmp_path / "second", tensors))
    assert found.bytes.other == (NAMES[0],)
    assert "its names begin with 'module.'" in found.summary


def test_a_folder_without_weights_cannot_be_compared(tmp_path):
    first = write_model(tmp_path / "first", TENSORS)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(auditor.SourceError, match="no weights") as caught:
        auditor.diff(first, str(tmp_path))
    assert caught.value.reason is auditor.Reason.NO_WEIGHTS


def test_a_comparison_is_an_object_and_one_line(tmp_path):
    first = write_model(tmp_path / "first", TENSORS)
    rest = {name: one for name, one in TENSORS.items() if "embed" not in name}
    found = auditor.diff(first, write_model(tmp_path / "second", rest))
    assert isinstance(found, auditor.Comparison)
    assert repr(found).endswith(", lost embeddings, 1 removed)")
    [lost] = found.to_dict()["lost"]
    assert (lost["lost"], lost["parameters"]) == ("model.embed_tokens", 32)
    assert repr(auditor.diff(first, first)).endswith(", the same)")


# --- models of the Hub --------------------------------------------------------------------------


@pytest.fixture
def add(at_hub, tmp_path):
    def made(model, tensors, shards=1):
        folder = Path(write_model(tmp_path / "hub" / model, tensors, shards))
        at_hub.add(model, {one.name: one for one in folder.iterdir()})
        return model

    return made


@pytest.mark.parametrize("values", [False, True])
def test_a_copy_on_the_hub_is_recognised_by_its_sha256(add, values):
    found = auditor.diff(add("org/first", TENSORS), add("org/second", TENSORS), values=values)
    assert (found.same, found.not_compared) == (True, ())
    assert found.summary == f"B is A: the same bytes in all {len(NAMES)}."


def test_another_sha256_with_the_same_header_means_other_numbers(add):
    tuned = {name: one + 1 for name, one in TENSORS.items()}
    found = auditor.diff(add("org/first", TENSORS), add("org/second", tuned))
    assert not found.same
    assert found.bytes.other_files == ("model.safetensors",)
    assert found.summary.startswith("B has the tensors of A with other numbers: model.safetensors")
    assert found.not_compared[0].startswith(f"the bytes of each of {len(NAMES)} tensors")
    assert [row["change"] for row in found.to_dict()["tensors"]] == ["other sha256"]


def test_another_sha256_with_another_header_leaves_open_what_differs(add):
    turned = in_order(reversed(NAMES))
    found = auditor.diff(add("org/first", TENSORS), add("org/second", turned))
    assert not found.same
    assert "cannot tell" in found.summary


def test_other_shards_on_the_hub_are_not_compared_and_that_is_said(add):
    found = auditor.diff(add("org/first", TENSORS), add("org/second", TENSORS, shards=2))
    assert found.same
    assert "their numbers were not compared" in found.summary
    [line] = found.not_compared
    assert line.startswith(f"the bytes of {len(NAMES)} tensors")


def test_a_folder_is_compared_with_the_hub_by_sha256(add, tmp_path):
    folder = write_model(tmp_path / "first", TENSORS)
    assert auditor.diff(folder, add("org/second", TENSORS)).summary.startswith("B is A")
    changed = write_model(tmp_path / "changed", {**TENSORS, NAMES[0]: TENSORS[NAMES[0]] + 1})
    assert auditor.diff(changed, "org/second").bytes.other_files == ("model.safetensors",)
