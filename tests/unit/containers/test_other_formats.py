import pickle

import pytest
from support.other_format_bytes import SOUND, flax_bytes, hdf5_bytes, nemo_bytes, onnx_bytes

from auditor.containers import flax
from auditor.containers.code_in_files import parse
from auditor.containers.other_formats import OTHER_FORMATS, format_of
from auditor.containers.weight_formats import (
    FilePart,
    PartialFile,
    Table,
    UnfollowedError,
    UnsafeFileError,
)
from auditor.errors import CheckpointError


def complete(content: bytes) -> PartialFile:
    return PartialFile(len(content), (FilePart(0, content),) if content else ())


def faults_of(name: str, content: bytes) -> list[str]:
    table = parse(name, complete(content))
    return [*table.size_faults, *(reason for _, reason in table.faults)]


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_file_of_each_format_has_no_fault(name):
    assert format_of(name, SOUND[name][:512])
    assert faults_of(name, SOUND[name]) == []


def test_each_reader_of_the_table_has_a_sound_file():
    read = {row.module for name in SOUND if (row := format_of(name, SOUND[name][:512]))}
    assert {row.module for row in OTHER_FORMATS if row.module} == read


@pytest.mark.parametrize(
    "name",
    ["model.bin", "weights/weight.bin", "model.pte", "model.tflite", "model.onnx", "model.nemo"],
)
def test_a_file_that_is_cut_off_has_a_fault(name):
    content = SOUND[name]
    used = len(content.rstrip(b"\0")) if name == "model.nemo" else len(content)
    assert any("truncated" in fault for fault in faults_of(name, content[: used - 3]))


def test_an_hdf5_file_that_is_shorter_than_it_declares_is_truncated():
    assert faults_of("tf_model.h5", hdf5_bytes(1000)) == [
        "tf_model.h5 is truncated: it has 96 bytes, and its header declares 1,000"
    ]
    with pytest.raises(UnfollowedError) as caught:  # a model of Keras may have code
        parse("model.h5", complete(hdf5_bytes(1000)))
    assert caught.value.table
    assert len(caught.value.table.size_faults) == 1


def test_external_data_are_needed_up_to_the_end_of_the_last_tensor():
    table = parse("onnx/model.onnx", complete(SOUND["model.onnx"]))
    assert [(one.path, one.least) for one in table.needs] == [("onnx/m.data", 16)]
    assert [(one.name, one.dtype, one.shape) for one in table.tensors] == [("w", "F32", (4,))]
    assert any("leaves" in one for one in faults_of("model.onnx", onnx_bytes(b"../m.data")))


def test_a_pickle_in_an_archive_of_nemo_is_followed():
    evil = b"cos\nsystem\n(S'id'\ntR."
    with pytest.raises(UnsafeFileError, match="model_weights"):
        parse("model.nemo", complete(nemo_bytes(evil)))
    assert isinstance(parse("model.nemo", complete(nemo_bytes(pickle.dumps(1, 2)))), Table)


def test_arrays_of_flax_have_the_names_and_axes_of_torch():
    content = flax_bytes(
        {
            "params": {
                "dense": {"kernel": [2, 3], "bias": [3]},
                "conv": {"kernel": [5, 6, 3, 4]},
                "word": {"embedding": [7, 2]},
                "norm": {"scale": [2]},
            },
            "batch_stats": {"bn": {"mean": [2], "var": [2]}},
            "opt_state": {"x": [1]},
        }
    )
    table = flax.parse("flax_model.msgpack", complete(content))
    assert {one.name: one.shape for one in table.tensors} == {
        "dense.weight": (3, 2),
        "dense.bias": (3,),
        "conv.weight": (4, 3, 5, 6),
        "word.weight": (7, 2),
        "norm.weight": (2,),
        "bn.running_mean": (2,),
        "bn.running_var": (2,),
    }
    with pytest.raises(CheckpointError, match="truncated"):
        flax.parse("flax_model.msgpack", complete(content[:-1]))
