"""The .metadata of torch's distributed checkpoints, as torch itself writes and loads them."""

import io
import os
import pickle
import subprocess
import sys
import warnings
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.distributed import dcp_bytes
from support.libraries import needs

from auditor.bounded.pickle_machine import follow_pickle
from auditor.containers.dcp import parse
from auditor.containers.dcp_entries import EntryShortcut, attributes, stored_place, tensor_entry
from auditor.containers.saved_dicts import model_of
from auditor.containers.weight_formats import FilePart, PartialFile, UnsafeFileError

METADATA = "torch.distributed.checkpoint.metadata.Metadata"
TABLES = st.dictionaries(
    st.text("abc.é" * 60, min_size=1, max_size=90),
    st.tuples(
        st.sampled_from(["F32", "BF16"]), st.lists(st.integers(0, 70_000), max_size=5).map(tuple)
    ),
    max_size=6,
)
WRITER = """
import sys, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.device_mesh import init_device_mesh
dist.init_process_group("gloo", rank=int(sys.argv[1]), world_size=2, init_method=sys.argv[2])
mesh = init_device_mesh("cpu", (2,))
whole = {"layers.0.weight": torch.ones(5, 3), "norm.bias": torch.ones(7), "step": torch.ones(())}
sharded = {k: distribute_tensor(v, mesh, [Shard(0)]) if v.dim() else v for k, v in whole.items()}
dcp.save({"model": sharded, "optim": {"lr": 0.5}}, checkpoint_id=sys.argv[3])
dist.destroy_process_group()
"""


def read(content):
    return parse(".metadata", PartialFile(len(content), (FilePart(0, content),)))


def entries(content, shortcut=None):
    pickle = follow_pickle(content, 0, shortcut)
    assert pickle.fault is None, pickle.fault
    found = attributes(pickle.value, METADATA)
    tensors = [(name, tensor_entry(value)) for name, value in found["state_dict_metadata"].pairs]
    places = [stored_place(key, value) for key, value in found["storage_data"].pairs]
    return tensors, places, found["planner_data"].pairs


@given(TABLES, st.integers(1, 3), st.sampled_from([(), ("model",), ("app", "model")]))
def test_entries_that_are_followed_at_once_are_those_of_each_opcode(table, ranks, keys):
    content, _ = dcp_bytes(table, ranks=ranks, keys=keys)
    assert entries(content, EntryShortcut(content)) == entries(content)


def test_another_class_is_unsafe_and_is_not_imported():
    class Planted:
        def __reduce__(self):
            return os._exit, (42,)

    with pytest.raises(UnsafeFileError, match="is a pickle") as caught:
        read(pickle.dumps({"state_dict_metadata": Planted()}, 4))
    assert "_exit" in caught.value.imports[0]


def test_the_model_is_told_from_what_else_a_training_saves():
    names = ["layers.0.weight", "optimizer.state.layers.0.weight.exp_avg", "train_state"]
    assert model_of(names, {}).names == {"layers.0.weight": "layers.0.weight"}
    keys = {"a.m.w": ("a", "m.w"), "a.o.x": ("a", "optim", "x"), "e.w": ("e", "w")}
    part = model_of(["model.w", "ema.w"], {"model.w": ("model", "w"), "ema.w": ("ema", "w")})
    assert (part.names, part.prefix, part.others) == (
        {"model.w": "w"},
        "model",
        ("'ema' (1 tensor)",),
    )
    assert model_of(keys, keys).names == {"a.m.w": "a.m.w", "e.w": "e.w"}


@pytest.mark.oracle
@needs("torch")
def test_the_table_is_what_torch_saved_in_one_process(tmp_path):
    import torch  # noqa: PLC0415 - seconds
    import torch.distributed.checkpoint as dcp  # noqa: PLC0415 - as above

    state = {
        f"layers.{layer}.w{kind}": torch.ones(shape, dtype=dtype)
        for layer in range(300)
        for kind, shape, dtype in (
            (0, (layer, 70_000 * (layer == 7)), torch.bfloat16),
            (1, (), torch.float64),
            (2, (1, 2, 3, 4, 5), torch.int64),
        )
    }
    with warnings.catch_warnings(action="ignore"):  # about the single process
        dcp.save({"model": state, "step": 5}, checkpoint_id=tmp_path, no_dist=True)
    content = (tmp_path / ".metadata").read_bytes()
    assert entries(content, EntryShortcut(content)) == entries(content)
    table = read(content)
    assert {one.name: one.shape for one in table.tensors} == {
        name: tuple(tensor.shape) for name, tensor in state.items()
    }
    assert (table.faults, [one.path for one in table.needs]) == ((), ["__0_0.distcp"])
    assert table.needs[0].least == (tmp_path / "__0_0.distcp").stat().st_size
    assert sum(one.span.length for one in table.tensors) == sum(
        prod(one.shape) * one.element_size() for one in state.values()
    )


@pytest.mark.oracle
@needs("torch")
def test_the_table_is_what_torch_saved_in_two_processes(tmp_path):
    out, place = tmp_path / "out", f"file://{tmp_path}/store"
    calls = [[sys.executable, "-c", WRITER, rank, place, str(out)] for rank in ("0", "1")]
    ranks = [subprocess.Popen(call) for call in calls]  # noqa: S603 - our own program
    assert [rank.wait() for rank in ranks] == [0, 0]
    content = (out / ".metadata").read_bytes()
    table = read(content)
    assert [one.path for one in table.needs] == ["__0_0.distcp", "__1_0.distcp"]
    assert {one.name: one.shape for one in table.tensors} == {
        "layers.0.weight": (5, 3),
        "norm.bias": (7,),
        "step": (),
    }
    assert table.faults == ()
    assert all((out / one.path).stat().st_size == one.least for one in table.needs)
    assert pickle.load(io.BytesIO(content)).storage_meta is not None  # noqa: S301 - our own file
