"""The total sizes that are possible without an architecture: by headers, file sizes and names."""

import json
from math import prod

from hypothesis import given
from hypothesis import strategies as st
from support.builders import safetensors_bytes

from auditor.checkpoint.snapshot import RepoFile, Snapshot, Source, TextFile, WeightHeader
from auditor.reconciler.contents import contents
from auditor.reconciler.index.rules import stated_size_rule
from auditor.tensors import DTYPE_BITS

names = st.text(min_size=1, max_size=60).filter(lambda name: name != "__metadata__")
tensor = st.tuples(
    st.sampled_from(["F32", "BF16", "U8", "F8_E4M3", "I64"]),
    st.lists(st.integers(1, 40), max_size=3),
)
shard = st.tuples(
    st.dictionaries(names, tensor, min_size=1, max_size=6),
    st.sampled_from(["read", "pointer", "listed", "unknown"]),
)


def findings_of(shards, total, ending="safetensors") -> list[str]:
    """The findings about shards, each with its tensors, its file's size and how it is known."""
    heads, files, weight_map = [], [], {}
    for number, (tensors, size, way) in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.{ending}"
        weight_map |= dict.fromkeys(tensors, name)
        if way == "read":
            head = safetensors_bytes(tensors, data=False)
            heads.append(WeightHeader(name=name, size=size, prefix=head))
        elif way == "pointer":
            text = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize {size}"
            heads.append(WeightHeader(name=name, size=134, prefix=f"{text}\n".encode()))
        files.append(RepoFile(name=name, size={"listed": size, "unknown": None}.get(way, 134)))
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    shot = Snapshot(
        model="model",
        commit=None,
        source=Source.FOLDER,
        origin="here",
        files=tuple(files),
        index=TextFile(name="model.safetensors.index.json", content=json.dumps(index).encode()),
        headers=tuple(heads),
        partial=True,
    )
    found = contents(shot)
    return [one.reason for one in stated_size_rule(found.index, found, shot)]


@given(st.lists(shard, min_size=1, max_size=4), st.integers(1, 10**6))
def test_a_true_total_is_never_doubted_and_an_impossible_one_never_believed(drawn, more):
    shards, taken = [], set()
    for tensors, way in drawn:
        own = {name: one for name, one in tensors.items() if name not in taken}
        taken |= own.keys()
        if own:
            shards.append((own, len(safetensors_bytes(own)), way))
    total = sum(
        prod(shape) * DTYPE_BITS[dtype] // 8
        for tensors, *_ in shards
        for dtype, shape in tensors.values()
    )
    assert findings_of(shards, total) == []
    assert findings_of(shards, float(total)) == []
    assert len(findings_of(shards, 0)) == 1
    if all(way != "unknown" for *_, way in shards):
        assert len(findings_of(shards, sum(size for _, size, _ in shards) + more)) == 1


# Two shards of 1,073,741,824 bytes of data: 1024 * 1024 * 512 numbers of two bytes. Their files
# have 124 more: the length, and 116 of header.
DATA, SIZE = 2_147_483_648, 1_073_741_948


def test_a_total_is_compared_with_the_sizes_of_files(subtests):
    for total, ending, words in [
        (DATA, "safetensors", None),
        (2 * DATA, "safetensors", "at most 2,147,483,782 bytes of tensors, by the sizes of 2 of 2"),
        (DATA // 2, "safetensors", "hold at least 2,147,350,776 bytes"),  # 2 * (SIZE - 66,560)
        # torch: tied tensors are stored once and may be counted twice, masks at 1/8
        (DATA * 3 // 2, "bin", None),
        (DATA // 4, "bin", None),
        (3 * DATA, "bin", "by the sizes of 2 of 2 files"),
    ]:
        with subtests.test(total=total):
            shards = [
                ({f"{at}.weight": ("BF16", (1024, 1024, 512))}, SIZE, "pointer") for at in range(2)
            ]
            found = findings_of(shards, total, ending)
            assert len(found) == (words is not None)
            assert all(words in reason for reason in found)
