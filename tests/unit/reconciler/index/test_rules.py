"""What a total_size can be where no architecture says it: by headers, sizes of files and names."""

import json
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.builders import safetensors_bytes

from auditor.checkpoint.snapshot import RepoFile, Snapshot, Source, TextFile, WeightHeader
from auditor.containers.weight_formats import Table
from auditor.reconciler.contents import contents
from auditor.reconciler.index.rules import stated_size_rule
from auditor.tensors import DTYPE_BITS

INDEX = "model.safetensors.index.json"
WAYS = ("read", "pointer", "listed", "unknown")

names = st.text(min_size=1, max_size=60).filter(lambda name: name != "__metadata__")
tensor = st.tuples(
    st.sampled_from(["F32", "BF16", "U8", "F8_E4M3", "I64"]),
    st.lists(st.integers(1, 40), max_size=3),
)
shard = st.tuples(st.dictionaries(names, tensor, min_size=1, max_size=6), st.sampled_from(WAYS))


def held(tensors) -> int:
    return sum(prod(shape) * DTYPE_BITS[dtype] // 8 for dtype, shape in tensors.values())


def pointer(name: str, size: int) -> WeightHeader:
    text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize {size}\n"
    return WeightHeader(name=name, size=len(text), prefix=text.encode())


def snapshot(shards, total, ending="safetensors") -> Snapshot:
    """Shards as (name -> size and names, way), and an index of them all."""
    heads, files, weight_map = [], [], {}
    for number, (tensors, size, way) in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.{ending}"
        weight_map |= dict.fromkeys(tensors, name)
        if way == "read":
            head = safetensors_bytes(tensors, data=False)
            heads.append(WeightHeader(name=name, size=size, prefix=head))
        elif way == "pointer":
            heads.append(pointer(name, size))
        files.append(RepoFile(name=name, size={"listed": size, "unknown": None}.get(way, 134)))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    return Snapshot(
        model="model",
        commit=None,
        source=Source.FOLDER,
        origin="here",
        files=tuple(files),
        index=TextFile(name=INDEX, content=json.dumps(index).encode()),
        headers=tuple(heads),
        partial=True,
    )


def said(shot: Snapshot) -> list[str]:
    found = contents(shot)
    assert found.index is not None
    return [one.reason for one in stated_size_rule(found.index, found, shot)]


def written(drawn):
    """Different names in each shard, and the size that its file truly has."""
    taken: set[str] = set()
    for tensors, way in drawn:
        own = {name: one for name, one in tensors.items() if name not in taken}
        taken |= own.keys()
        if own:
            yield own, len(safetensors_bytes(own)), way


# --- laws -------------------------------------------------------------------------------------


@given(st.lists(shard, min_size=1, max_size=4))
def test_a_true_total_is_never_doubted(drawn):
    shards = list(written(drawn))
    total = sum(held(tensors) for tensors, _, _ in shards)
    assert said(snapshot(shards, total)) == []
    assert said(snapshot(shards, float(total))) == []


@given(st.lists(shard, min_size=1, max_size=4), st.integers(1, 10**6))
def test_a_total_beyond_all_files_is_never_believed_where_their_sizes_are_known(drawn, more):
    shards = [(tensors, size, way) for tensors, size, way in written(drawn) if way != "unknown"]
    total = sum(size for _, size, _ in shards) + more
    if shards:
        assert len(said(snapshot(shards, total))) == 1


@given(st.lists(shard, min_size=1, max_size=4))
def test_a_total_of_nothing_is_never_believed(drawn):
    assert len(said(snapshot(list(written(drawn)), 0))) == 1


# --- of the sizes that real files have ---------------------------------------------------------

# Two shards of 1,073,741,824 bytes of data: 1024 * 1024 * 512 numbers of two bytes. Their files
# have 124 more: the length, and 116 of header.
GIGABYTES = {f"layers.{n}.weight": ("BF16", (1024, 1024, 512)) for n in range(2)}
DATA, SIZE = 2_147_483_648, 1_073_741_948
MOST = "2,147,483,752"  # 2 * (SIZE - 8 - 49 - 15 letters of a name)
LEAST = "2,147,350,776"  # 2 * (SIZE - 1,024 - 65,536)


@pytest.mark.parametrize(
    ("total", "ending", "way", "words"),
    [
        (DATA, "safetensors", "pointer", None),
        (2 * DATA, "safetensors", "pointer", f"hold at most {MOST} bytes of tensors, by the sizes"),
        (2 * DATA, "safetensors", "listed", "by the sizes of 2 of 2 files: +2,147,483,544"),
        (2 * DATA, "safetensors", "unknown", None),
        (DATA // 2, "safetensors", "listed", f"hold at least {LEAST} bytes"),
        (0, "safetensors", "unknown", "at least 2 bytes of tensors, a byte for each of the names"),
        # torch: tied tensors are stored once and may be counted twice, masks at 1/8
        (DATA * 3 // 2, "bin", "pointer", None),
        (DATA // 4, "bin", "pointer", None),
        (2 * DATA, "bin", "pointer", "the shards hold at most 4,294,701,552 bytes"),  # 2 * LEAST
        (0, "bin", "listed", "by the sizes of 2 of 2 files"),
    ],
)
def test_a_total_is_held_to_the_files(total, ending, way, words):
    shards = [({name: one}, SIZE, way) for name, one in GIGABYTES.items()]
    found = said(snapshot(shards, total, ending))
    assert len(found) == (words is not None)
    assert all(words in reason for reason in found)


def test_a_total_may_count_twice_what_torch_stores_once(tmp_path):
    torch = pytest.importorskip("torch")
    embedding = torch.zeros(4096, 64)
    model = {"embed.weight": embedding, "head.weight": embedding, "norm.weight": torch.zeros(64)}
    torch.save(model, tmp_path / "pytorch_model.bin")
    size = (tmp_path / "pytorch_model.bin").stat().st_size
    tensors = {name: ("F32", tuple(one.shape)) for name, one in model.items()}
    total = held(tensors)
    assert total > 1.9 * size
    assert said(snapshot([(tensors, size, "pointer")], total, "bin")) == []


def test_the_size_of_a_broken_shard_is_unknown():
    shot = snapshot([(GIGABYTES, SIZE, "pointer")], 2 * DATA)
    broken = WeightHeader(name=shot.headers[0].name, size=SIZE, prefix=b"\0" * 8)
    assert said(replace(shot, headers=(broken,), files=())) == []


def test_a_pointer_is_described_in_every_format():
    for name in ("model.safetensors", "pytorch_model.bin", "model.gguf"):
        assert pointer(name, 4_976_698_672).pointed == 4_976_698_672
    assert WeightHeader(name="m.safetensors", size=9, prefix=safetensors_bytes({})).pointed is None
    assert not isinstance(pointer("m.safetensors", 1).parsed, Table)
