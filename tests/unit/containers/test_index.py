"""An index: which file holds which tensor, and what strangers may not write there."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from support.examples import examples

from auditor.containers import index as index_module
from auditor.containers.index import parse_index, shard_fault
from auditor.errors import CheckpointError

F = "model.safetensors.index.json"


def index_bytes(weight_map, **metadata) -> bytes:
    return json.dumps({"metadata": metadata, "weight_map": weight_map}).encode()


names = st.text(st.characters(codec="utf-8"))
parts = st.builds("{}{}".format, st.sampled_from("abxyz"), st.text("abxyz0189._-", max_size=20))
shards = st.lists(parts, min_size=1, max_size=3).map("/".join)


@given(st.dictionaries(names, shards, min_size=1), st.none() | st.integers(0, 2**63 - 1))
def test_an_index_is_read_as_it_is_and_its_shards_sorted(weight_map, total_size):
    index = parse_index(F, index_bytes(weight_map, total_size=total_size))
    assert index.file == F
    assert dict(index.weight_map) == weight_map
    assert index.shards == tuple(sorted(set(weight_map.values())))
    assert index.total_size == total_size
    assert index.faults == ()


TOTALS = {  # what is written: (what is kept, whether it is a fault)
    "0": (0, False),
    "9223372036854775807": (2**63 - 1, False),
    "null": (None, False),
    "9223372036854775808": (None, True),
    "NaN": (None, True),
}


def test_a_total_is_kept_as_written_or_named_as_a_fault(subtests):
    for written, value in TOTALS.items():
        with subtests.test(written=written):
            key = "total_parameters" if "9" in written else "total_size"
            content = f'{{"metadata":{{"{key}":{written}}},"weight_map":{{"a":"m.safetensors"}}}}'
            index = parse_index(F, content.encode())
            kept, fault = value
            assert getattr(index, key) == kept
            assert [f"{F}: {key} is " in sentence for sentence in index.faults] == [True] * fault
            assert index.weight_map == {"a": "m.safetensors"}


def test_metadata_that_is_no_object_is_a_fault(subtests):
    for metadata, faults in [
        ("null", ()),
        ("[]", (f"{F}: metadata is a list, expected an object",)),
    ]:
        with subtests.test(metadata=metadata, faults=faults):
            index = parse_index(F, f'{{"metadata":{metadata},"weight_map":{{"a":"m"}}}}'.encode())
            assert index.faults == faults
            assert index.total_size is None


def test_a_tensor_named_twice_belongs_to_the_last_shard_with_a_fault():
    index = parse_index(F, b'{"weight_map":{"a":"x","b":"x","a":"y"}}')
    assert index.weight_map == {"a": "y", "b": "x"}
    assert index.faults == (f"{F} repeats keys, and the last value of each counts: 'a'",)


SHARDS = {
    "model-00001-of-00002.safetensors": None,
    "modèle 1.safetensors": None,
    "x" * 255: None,
    "": "is empty",
    "..": "leaves the folder",
    "../model.safetensors": "leaves the folder",
    "/etc/passwd": "is an absolute path",
    "https://evil.example/m.safetensors": "is a URL or begins with a drive",
    "..\\model.safetensors": "has a backslash",
    "m\0.safetensors": "has control characters",
    "m\u202egpj.safetensors": "has control characters",
    "a//b": "has a folder or file name that is empty or '.'",
    "./../a": "leaves the folder",
    "x" * 256: "has a part of 256 bytes, expected at most 255",
    "x/" * 2050 + "x": "is longer than any path",
}


def test_a_shard_is_a_file_in_or_below_the_folder_of_the_index(subtests):
    for shard, value in SHARDS.items():
        with subtests.test(shard=shard):
            fault = value
            content = index_bytes({"a": "ok.safetensors", "b": shard})
            if fault is None:
                assert shard_fault(shard) is None
                assert shard in parse_index(F, content).shards
            else:
                assert fault in str(shard_fault(shard.removeprefix("./")))
                with pytest.raises(CheckpointError, match=f"^{F}: the shard '.*{fault}"):
                    parse_index(F, content)


@given(st.dictionaries(names, st.tuples(st.sampled_from(["", "./"]), shards), min_size=1))
def test_a_dot_before_a_shard_changes_nothing_but_that_the_hub_has_no_such_file(weight_map):
    written = {name: f"{dot}{shard}" for name, (dot, shard) in weight_map.items()}
    plain = {name: shard for name, (_, shard) in weight_map.items()}
    index = parse_index(F, index_bytes(written))
    assert replace(index, hub_fault=None) == parse_index(F, index_bytes(plain))
    lost = any(shard.startswith("./") for shard in written.values())
    assert bool(index.hub_fault) == (lost and len(set(written.values())) > 1)


@given(st.text())
def test_no_shard_name_leaves_the_folder(shard):
    if shard_fault(shard) is None:
        parts = shard.split("/")
        assert shard.isprintable() or not shard.isascii()
        assert not {"", ".", ".."} & set(parts)
        assert "\\" not in shard


FAILS = {
    " is a Git LFS pointer to a file of 27,752 bytes": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:18\nsize 27752\n"
    ),
    " has an unresolved git merge conflict": b'{\n<<<<<<< HEAD\n"weight_map": {}\n=======\n}',
    " has no weight_map, expected an index; its keys are '_class_name', 'unet'": (
        b'{"_class_name": "StableDiffusion3Pipeline", "unet": []}'
    ),
    ": weight_map is a list, expected an object": b'{"weight_map": []}',
    ": weight_map is empty": b'{"weight_map": {}}',
    ": weight_map has 1 under 'a', expected a file": b'{"weight_map": {"a": 1}}',
    " has 33,554,433 bytes, expected at most 33,554,432": b" " * (32 * 1024 * 1024 + 1),
}


def test_an_invalid_index_is_refused_with_a_reason(subtests):
    for message, value in FAILS.items():
        with subtests.test(message=message), pytest.raises(CheckpointError, match=f"^{F}{message}"):
            parse_index(F, value)


@pytest.mark.slow
def test_the_largest_known_index_is_not_too_large():
    weight_map = {
        f"model.layers.{i // 1536}.mlp.experts.{i % 256}.down_proj.{i}.weight_scale_inv": (
            f"model-{i % 163:05}-of-000163.safetensors"
        )
        for i in range(92_000)
    }
    content = json.dumps({"weight_map": weight_map}, indent=2).encode()
    assert len(content) > 8_900_000
    assert len(parse_index(F, content).shards) == 163


def test_an_index_of_more_files_than_any_model_has_is_refused():
    weight_map = {f"t{number}": f"{number}.safetensors" for number in range(10_001)}
    with pytest.raises(CheckpointError, match="names 10,001 files, expected at most 10,000"):
        parse_index(F, index_bytes(weight_map))
    weight_map.popitem()
    assert len(parse_index(F, index_bytes(weight_map)).shards) == 10_000


@pytest.mark.slow
def test_an_index_of_more_tensors_than_any_model_has_is_refused():
    weight_map = dict.fromkeys(map(str, range(250_001)), "a.safetensors")
    with pytest.raises(CheckpointError, match="names 250,001 tensors, expected at most 250,000"):
        parse_index(F, index_bytes(weight_map))


# --- what is read fast is read alike -----------------------------------------------------------

PIECES = st.sampled_from(
    [
        '"a"',
        '"b"',
        '"b"',
        '"\\u0061"',
        '"é"',
        "1",
        "null",
        '{"a": "b"}',
        "NaN",
        '"total_size"',
        "[]",
    ]
)
PAIRS = st.lists(st.tuples(PIECES, PIECES), max_size=4)
OBJECTS = PAIRS.map(lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}")
TEXTS = st.lists(
    st.tuples(
        st.sampled_from(['"weight_map"', '"metadata"', '"other"']), st.one_of(OBJECTS, PIECES)
    ),
    max_size=3,
).map(lambda pairs: "{" + ",".join(f"{key}:{value}" for key, value in pairs) + "}")


def outcome(content):
    try:
        return parse_index("an index", content)
    except CheckpointError as error:
        return str(error)


@given(TEXTS)
@example('{"metadata": {"total_size": 8}, "weight_map": {"a": "f", "b": "f"}}')
@example('{"metadata": {"total_size": 8}, "weight_map": {"a": "f", "a": "g"}}')
@example('{"metadata": {}, "metadata": {}, "weight_map": {"a": "f"}}')
@examples(300)
def test_what_is_written_plainly_is_read_as_anything_is(text):
    fast = outcome(text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "_plainly_written", lambda *_: None)
        assert fast == outcome(text.encode())
