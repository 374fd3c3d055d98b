"""What a partial copy of a checkpoint holds."""

import json

from support.builders import safetensors_bytes
from support.four_tensors import FILE

from auditor.checkpoint.snapshot import Snapshot, Source, TextFile, WeightHeader
from auditor.reconciler.contents import contents

SHARDS = ("model-1.safetensors", "model-2.safetensors", "model-3.safetensors")


def copy_of(weight_map, *, opened=(), unopened=(), partial=True) -> Snapshot:
    content = json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
    heads = []
    for shard in opened:
        names = [name for name, where in weight_map.items() if where == shard]
        head = safetensors_bytes(dict.fromkeys(names, ("F32", (2,))), data=False)
        heads.append(WeightHeader(name=shard, size=len(head) + 8 * len(names), prefix=head))
    return Snapshot(
        model="model",
        commit=None,
        source=Source.FOLDER,
        origin="here",
        files=(),
        index=TextFile(name=FILE, content=content),
        headers=tuple(heads),
        unopened=tuple(unopened),
        partial=partial,
    )


MAP = {"a": SHARDS[0], "b": SHARDS[1], "c": SHARDS[2]}


def test_a_copy_holds_the_names_of_every_shard_that_exists(subtests):
    for opened, unopened, names, reasons in [
        ((), (), ["a", "b", "c"], []),
        (SHARDS, (), ["a", "b", "c"], []),
        (SHARDS[:1], (), ["a", "b", "c"], []),
        (SHARDS[:1], SHARDS[2:], ["a", "b"], ["1 tensors in model-3.safetensors"]),
        (SHARDS[:1], SHARDS[1:], ["a"], ["2 of the 3 shards"]),
    ]:
        with subtests.test(opened=opened):
            found = contents(copy_of(MAP, opened=opened, unopened=unopened))
            assert sorted(tensor.name for tensor in found.tensors) == names
            assert [tensor.name for tensor in found.tensors if tensor.shape] == list(
                "abc"[: len(opened)]
            )
            assert len(found.unread) == len(reasons)
            for item, words in zip(found.unread, reasons, strict=True):
                assert words in item.reason
            assert found.names_only == (len(names) > len(opened))
            assert found.unread_files == 3 - len(names)


def test_an_index_alone_is_an_error_and_its_names_are_compared(subtests):
    for partial in [True, False]:
        with subtests.test(partial=partial):
            found = contents(copy_of(MAP, unopened=SHARDS, partial=partial))
            assert [tensor.name for tensor in found.tensors] == list(MAP)
            assert (found.names_only, found.unread) == (True, ())
            [finding] = found.findings
            assert (finding.kind, finding.file, finding.names) == ("bad-index", FILE, tuple(MAP))
            assert finding.reason.startswith(f"none of the 3 files that {FILE} names is here: ")


def test_a_shard_that_is_no_safetensors_file_is_named():
    found = contents(copy_of({**MAP, "d": "gene.pt"}))
    (finding,) = found.findings
    assert finding.names == ("d",)
    assert "1 tensors in 'gene.pt', which is not a safetensors file" in finding.reason
