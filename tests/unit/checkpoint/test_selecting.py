"""Which files of a listing are audited."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from auditor.checkpoint.selecting import (
    FileSelection,
    is_weights,
    name_fault,
    other_weight_files,
    select,
    with_torch_copies,
)
from auditor.checkpoint.snapshot import RepoFile, Snapshot, Source, TextFile, WeightHeader
from auditor.errors import Reason, SourceError

CONFIG, ONE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TORCH_WEIGHTS, TORCH_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
SHARDS = ("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin")
NAMES = [CONFIG, ONE, INDEX, "README.md", ".gitattributes", TORCH_WEIGHTS, "unet/a.bin"]


@given(st.lists(st.sampled_from(NAMES), unique=True).flatmap(st.permutations))
def test_the_order_of_a_listing_changes_nothing(names):
    def outcome(listing):
        try:
            return select(listing, "x")
        except SourceError as error:
            return error.reason, str(error)

    assert outcome(names) == outcome(sorted(names))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([CONFIG, ONE], FileSelection(config=CONFIG, weights=ONE)),
        ([CONFIG, ONE, INDEX], FileSelection(config=CONFIG, weights=ONE)),
        ([CONFIG, INDEX], FileSelection(config=CONFIG, index=INDEX)),
        ([CONFIG, INDEX, TORCH_WEIGHTS], FileSelection(config=CONFIG, index=INDEX)),
        ([CONFIG, TORCH_WEIGHTS, TORCH_INDEX], FileSelection(config=CONFIG, weights=TORCH_WEIGHTS)),
        ([TORCH_INDEX], FileSelection(config=None, index=TORCH_INDEX)),
        ([ONE], FileSelection(config=None, weights=ONE)),
    ],
)
def test_what_from_pretrained_would_load_is_audited(names, expected):
    assert select(names, "org/name") == expected


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([ONE, TORCH_WEIGHTS, TORCH_INDEX, *SHARDS], (TORCH_WEIGHTS,)),
        ([INDEX, TORCH_INDEX, *SHARDS], SHARDS),
        ([ONE, "unet/pytorch_model.bin", "consolidated.pth", "pytorch_model.fp16.bin"], ()),
        ([ONE], ()),
        ([TORCH_WEIGHTS, *SHARDS], ()),
    ],
)
def test_only_safetensors_have_torch_copies_and_those_are_one_torch_file_or_all_shards(
    names, expected
):
    chosen = with_torch_copies(names, "org/name")
    assert chosen.torch_copies == expected
    assert replace(chosen, torch_copies=()) == select(names, "org/name")


@pytest.mark.parametrize(
    ("names", "reason", "said"),
    [
        ([], Reason.EMPTY_REPO, "org/name is empty"),
        ([".gitattributes", "README.md", "LICENSE"], Reason.EMPTY_REPO, "is empty"),
        ([CONFIG], Reason.NO_WEIGHTS, "holds no weights.*config.json"),
        ([CONFIG, "training_args.bin"], Reason.NO_WEIGHTS, "training_args.bin"),
        ([CONFIG, "flax_model.msgpack"], Reason.NO_SAFETENSORS, "flax_model.msgpack"),
        ([CONFIG, "tf_model.h5"], Reason.NO_SAFETENSORS, "tf_model.h5"),
        ([CONFIG, "fsdp_0/__0_0.distcp"], Reason.NO_SAFETENSORS, "fsdp_0/__0_0.distcp"),
        (
            ["m-Q4_0.gguf", "m-Q8_0.gguf"],
            Reason.NO_SAFETENSORS,
            "holds 2 GGUF models, .m-Q4_0.gguf",
        ),
        (["adapter_model.safetensors"], Reason.NO_SAFETENSORS, "adapter_model.safetensors"),
        (["ggml-model.bin"], Reason.NO_SAFETENSORS, "ggml-model.bin"),
        (["unet/model.safetensors"], Reason.NO_SAFETENSORS, "unet/model.safetensors"),
        ([f"{n}.bin" for n in range(9)], Reason.NO_SAFETENSORS, "'4.bin' and 4 more"),
    ],
)
def test_a_folder_without_weights_is_reported_with_its_contents(names, reason, said):
    with pytest.raises(SourceError, match=said) as raised:
        select(names, "org/name")
    assert raised.value.reason is reason


@pytest.mark.parametrize(
    "name",
    [
        "consolidated.safetensors",
        "consolidated.00.pth",
        "my_style.safetensors",
        "split_files/diffusion_models/model_bf16.safetensors",
        "sd-v1-4.ckpt",
    ],
)
def test_the_only_weight_file_of_a_repository_without_a_config_is_selected(name):
    assert select([name, "README.md", "params.json"], "org/name").weights == name
    with pytest.raises(SourceError, match="its weights are"):
        select([name, f"other-{name.replace('/', '-')}"], "org/name")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("global_step10/mp_rank_00_model_states.pt", "name one of them to audit it alone"),
        ("pytorch_model_fsdp_0/__0_0.distcp", "unpickles .metadata"),
        ("tf_model.h5", "from_tf=True in transformers 4"),
        ("flax_model.msgpack", "from_flax=True in transformers 4"),
        ("model.onnx", "can be audited are safetensors, torch's and GGUF"),
    ],
)
def test_weights_that_are_not_selected_are_named_with_what_to_do(name, says):
    with pytest.raises(SourceError, match="its weights are") as raised:
        select(["config.json", name], "org/name")
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("consolidated.safetensors", True),
        ("onnx/model.onnx", True),
        ("pytorch_model-00001-of-00002.bin", True),
        ("other.safetensors.index.json", True),
        ("optimizer.pt", False),
        ("checkpoint-5/rng_state_0.pth", False),
        ("config.json", False),
        ("tokenizer.model", False),
    ],
)
def test_weight_files_are_recognised_by_their_names(name, weights):
    assert is_weights(name) is weights


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("a/../b", True),
        ("/etc/passwd", True),
        ("", True),
        ("a\0b", True),
        ("a//b", True),
        ("x" * 4097, True),
        ("a/b.json", False),
        ("..a", False),
        ("a b", False),
    ],
)
def test_a_name_that_leaves_the_repository_is_refused(name, fault):
    assert (name_fault(name) is not None) is fault


def snapshot(*names: str, **parts) -> Snapshot:
    files = tuple(RepoFile(name=name, size=1) for name in names)
    return Snapshot(
        model="m", commit=None, source=Source.FOLDER, origin="a test", files=files, **parts
    )


def test_what_is_not_read_is_other_weights():
    names = (CONFIG, "a.safetensors", "b.safetensors", INDEX, "old.bin")
    sharded = snapshot(
        *names,
        index=TextFile(name=INDEX, content=b"{}"),
        headers=(WeightHeader(name="a.safetensors", size=1, prefix=b""),),
        unopened=("c.safetensors",),
    )
    assert other_weight_files(sharded) == ("b.safetensors", "old.bin")
    single = snapshot(*names, headers=(WeightHeader(name="a.safetensors", size=1, prefix=b""),))
    assert other_weight_files(single) == ("b.safetensors", INDEX, "old.bin")


def test_nothing_stands_beside_a_bare_config():
    assert other_weight_files(snapshot(CONFIG, "old.bin")) == ()
