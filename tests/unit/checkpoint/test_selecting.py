"""Which files of a listing are audited."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from auditor.checkpoint.filenames import (
    FoundWeights,
    folder_weights,
    models,
    standard_weights,
    variant_of,
    variants,
)
from auditor.checkpoint.selecting import (
    FileSelection,
    is_weights,
    name_fault,
    other_weight_files,
    select,
    select_place,
    with_torch_copies,
)
from auditor.checkpoint.snapshot import RepoFile, Snapshot, Source, TextFile, WeightHeader
from auditor.containers.manifest import MODULES, PIPELINE
from auditor.errors import Reason, SourceError

CONFIG, ONE, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
HALF, UNET = "model.fp16.safetensors", "diffusion_pytorch_model.safetensors"
TORCH, TORCH_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
SHARDS = ("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin")
NAMES = [CONFIG, ONE, INDEX, "README.md", ".gitattributes", TORCH, "unet/a.bin"]


def fault(choose, *args) -> tuple[Reason, str]:
    with pytest.raises(SourceError) as raised:
        choose(*args)
    return raised.value.reason, str(raised.value)


@given(st.lists(st.sampled_from(NAMES), unique=True).flatmap(st.permutations))
def test_the_order_of_a_listing_changes_nothing(names):
    def outcome(listing):
        try:
            return select(listing, "x")
        except SourceError as error:
            return error.reason, str(error)

    assert outcome(names) == outcome(sorted(names))


def test_what_from_pretrained_would_load_is_audited(subtests):
    for names, expected in [
        ([CONFIG, ONE, INDEX, TORCH], FileSelection(config=CONFIG, weights=ONE)),
        ([CONFIG, INDEX, TORCH], FileSelection(config=CONFIG, index=INDEX)),
        ([CONFIG, TORCH, TORCH_INDEX], FileSelection(config=CONFIG, weights=TORCH)),
        ([TORCH_INDEX], FileSelection(config=None, index=TORCH_INDEX)),
        (
            [PIPELINE, CONFIG, f"{UNET}.index.json"],
            FileSelection(config=CONFIG, index=f"{UNET}.index.json"),
        ),
    ]:
        with subtests.test(names=names, expected=expected):
            assert select(names, "org/name") == expected


def test_only_safetensors_have_torch_copies_and_those_are_one_file_or_all_shards(subtests):
    for names, expected in [
        ([ONE, TORCH, TORCH_INDEX, *SHARDS], (TORCH,)),
        ([INDEX, TORCH_INDEX, *SHARDS], SHARDS),
        ([ONE, "unet/pytorch_model.bin", "consolidated.pth", "pytorch_model.fp16.bin"], ()),
        ([TORCH, *SHARDS], ()),
    ]:
        with subtests.test(names=names, expected=expected):
            chosen = with_torch_copies(names, "org/name")
            assert chosen.torch_copies == expected
            assert replace(chosen, torch_copies=()) == select(names, "org/name")


def test_a_listing_without_weights_is_reported_with_what_to_do(subtests):
    for names, reason, words in [
        ([".gitattributes", "README.md", "LICENSE"], Reason.EMPTY_REPO, "org/name is empty"),
        ([CONFIG, "training_args.bin"], Reason.NO_WEIGHTS, "training_args.bin"),
        ([CONFIG, "flax_model.msgpack"], Reason.NO_SAFETENSORS, "from_flax=True"),
        ([CONFIG, "tf_model.h5"], Reason.NO_SAFETENSORS, "from_tf=True in transformers 4"),
        (
            ["a/.metadata", "a/_.distcp", "b/_.distcp"],
            Reason.NO_SAFETENSORS,
            "several checkpoints of a training",
        ),
        ([CONFIG, "model.onnx"], Reason.NO_SAFETENSORS, "exported from"),
        ([CONFIG, "step10/mp_rank_01_model_states.pt"], Reason.NO_SAFETENSORS, "name one of them"),
        (["m-Q4_0.gguf", "m-Q8_0.gguf"], Reason.NO_SAFETENSORS, "holds 2 GGUF models, 'm-Q4_0"),
        (["adapter_model.safetensors"], Reason.NO_SAFETENSORS, "adapter_model.safetensors"),
        (["ggml-model.bin"], Reason.NO_SAFETENSORS, "ggml-model.bin"),
        ([f"{n}.bin" for n in range(9)], Reason.NO_SAFETENSORS, "'4.bin' and 4 more"),
    ]:
        with subtests.test(names=names, reason=reason):
            found, message = fault(select, names, "org/name")
            assert found is reason
            assert words in message


def test_the_only_weight_file_of_a_repository_without_a_config_is_selected(subtests):
    for name in ["consolidated.00.pth", "split_files/model_bf16.safetensors", "sd-v1-4.ckpt"]:
        with subtests.test(name=name):
            assert select([name, "README.md", "params.json"], "org/name").weights == name
            other = f"other-{name.replace('/', '-')}"
            assert "its weights are" in fault(select, [name, other], "org/name")[1]


def test_weight_files_are_recognised_by_their_names():
    weights = ("consolidated.safetensors", "onnx/model.onnx", SHARDS[0], "a.safetensors.index.json")
    others = ("optimizer.pt", "checkpoint-5/rng_state_0.pth", CONFIG, "tokenizer.model")
    assert [name for name in (*weights, *others) if is_weights(name)] == [*weights]


def test_a_name_that_leaves_the_repository_is_refused():
    bad = ("a/../b", "/etc/passwd", "", "a\0b", "a//b", "x" * 4097)
    assert [name for name in (*bad, "a/b.json", "..a", "a b") if name_fault(name)] == [*bad]


def snapshot(*names: str, **parts) -> Snapshot:
    files = tuple(RepoFile(name=name, size=1) for name in names)
    return Snapshot(
        model="m", commit=None, source=Source.FOLDER, origin="a test", files=files, **parts
    )


def test_what_is_not_read_is_other_weights():
    names = (CONFIG, "a.safetensors", "b.safetensors", INDEX, "old.bin")
    head = WeightHeader(name="a.safetensors", size=1, prefix=b"")
    index = TextFile(name=INDEX, content=b"{}")
    sharded = snapshot(*names, index=index, headers=(head,), unopened=("c.safetensors",))
    assert other_weight_files(sharded) == ("b.safetensors", "old.bin")
    assert other_weight_files(snapshot(*names, headers=(head,))) == (
        "b.safetensors",
        INDEX,
        "old.bin",
    )
    assert other_weight_files(snapshot(CONFIG, "old.bin")) == ()


# --- variants -------------------------------------------------------------------------------------


def test_safetensors_come_first_and_a_variant_only_on_request(subtests):
    for names, variant, expected in [
        ({ONE, UNET, TORCH}, None, FoundWeights(weights=ONE)),
        ({UNET, TORCH}, None, FoundWeights(weights=UNET)),
        ({ONE, HALF}, "fp16", FoundWeights(weights=HALF)),
        ({ONE}, "fp16", None),
        ({HALF}, None, None),
        ({f"{INDEX[:-5]}.fp16.json"}, "fp16", FoundWeights(index=f"{INDEX[:-5]}.fp16.json")),
        ({f"unet/{UNET}", "other.safetensors"}, None, None),
    ]:
        with subtests.test(names=names, variant=variant):
            assert standard_weights(names, variant) == expected


def test_a_variant_is_recognised_by_the_name():
    assert {
        name: variant_of(name) for name in ("unet/diffusion_pytorch_model.non_ema.bin", HALF)
    } == {"unet/diffusion_pytorch_model.non_ema.bin": "non_ema", HALF: "fp16"}
    for name in ("model-00001-of-00002.{}.safetensors", "model.{}-00001-of-00002.safetensors"):
        assert variant_of(name.format("fp16")) == "fp16"
    plain = (ONE, "model-00001-of-00002.safetensors", INDEX, TORCH_INDEX, "other.fp16.safetensors")
    assert not any(map(variant_of, plain))


def test_shards_without_an_index_are_not_a_variant():
    assert variants({"model-00001-of-00002.fp16.safetensors"}) == ()
    assert variants({"model.safetensors.index.fp16.json", HALF}) == ("fp16",)


# --- several models -------------------------------------------------------------------------------


def test_a_component_has_the_variant_or_else_what_there_is():
    wanted = [({ONE, HALF}, None), ({ONE, HALF}, "fp16"), ({ONE}, "fp16"), ({HALF}, None)]
    assert [folder_weights(*one).weights for one in wanted] == [ONE, HALF, ONE, HALF]
    assert folder_weights({HALF, "model.bf16.safetensors"}, None) is None


def test_components_of_a_pipeline_have_the_torch_copies_of_their_own_folders():
    pipe = [
        PIPELINE,
        "vae/config.json",
        f"vae/{UNET}",
        "scheduler/scheduler_config.json",
        "x/y/a.bin",
    ]
    [part] = select(pipe, "x").parts
    selection = FileSelection(config="vae/config.json", weights=f"vae/{UNET}")
    assert (part.folder, part.selection) == ("vae", selection)
    chosen = with_torch_copies([*pipe, "vae/diffusion_pytorch_model.bin", TORCH], "x")
    assert chosen.torch_copies == ()
    assert chosen.parts[0].selection.torch_copies == ("vae/diffusion_pytorch_model.bin",)


def test_modules_are_looked_for_where_weights_are_or_should_be(subtests):
    for folder, files, is_model in [
        ("1_Pooling", [CONFIG], False),
        ("2_Dense", [CONFIG], True),
        ("odd", [ONE], True),
        ("onnx", [CONFIG, "model.onnx"], False),
    ]:
        with subtests.test(folder=folder, files=files):
            selection = select([CONFIG, ONE, MODULES, *(f"{folder}/{name}" for name in files)], "x")
            assert (selection.weights, bool(selection.parts)) == (ONE, is_model)
            assert selection.manifest == MODULES  # it also says what loads the repository's own


def test_without_a_manifest_a_folder_is_a_model_only_with_config_and_weights():
    names = ["a/config.json", f"a/{ONE}", f"b/{ONE}", "c/config.json"]
    assert [part.folder for part in models(names, None)] == ["a"]
    found = fault(select, names[2:], "x")
    assert found[0] is Reason.NO_SAFETENSORS
    assert "its weights are 'b/model.safetensors'" in found[1]


# --- a file or a folder that the user names -------------------------------------------------------

REPOSITORY = (
    *("README.md", CONFIG, INDEX, "adapter_config.json", "adapter_model.safetensors"),
    *(f"model-0000{number}-of-00002.safetensors" for number in (1, 2)),
    *("consolidated.safetensors", "gguf/big-00001-of-00002.gguf", "gguf/big-00002-of-00002.gguf"),
    *("unet/config.json", f"unet/{UNET}", "unet/diffusion_pytorch_model.fp16.safetensors"),
    "vae/empty.txt",
)
WHOLE = FileSelection(config=CONFIG, index=INDEX)
IN_UNET = FileSelection(config="unet/config.json", weights=f"unet/{UNET}")
PLACES = {
    "README.md": WHOLE,
    CONFIG: WHOLE,
    INDEX: WHOLE,
    "model-00002-of-00002.safetensors": WHOLE,
    "consolidated.safetensors": FileSelection(config=CONFIG, weights="consolidated.safetensors"),
    "adapter_model.safetensors": FileSelection(
        config="adapter_config.json", weights="adapter_model.safetensors"
    ),
    "gguf/big-00002-of-00002.gguf": FileSelection(
        config=CONFIG, shards=("gguf/big-00001-of-00002.gguf", "gguf/big-00002-of-00002.gguf")
    ),
    "unet/": IN_UNET,
    "unet/config.json": IN_UNET,
    "unet/diffusion_pytorch_model.fp16.safetensors": FileSelection(
        config="unet/config.json", weights="unet/diffusion_pytorch_model.fp16.safetensors"
    ),
}


def test_a_place_is_the_file_or_the_model_that_it_is_of():
    assert {place: select_place(REPOSITORY, "o/n", place) for place in PLACES} == PLACES
    missing = fault(select_place, REPOSITORY, "o/n", "nowhere.safetensors")[1]
    assert missing == "o/n has no file or folder 'nowhere.safetensors'"
    assert fault(select_place, REPOSITORY, "o/n", "vae")[1] == "'vae' of o/n holds no weights"


def test_the_file_that_describes_a_distributed_training_is_selected(subtests):
    for names, config, weights in [
        ([".metadata", "__0_0.distcp", "optimizer_0/.metadata"], None, ".metadata"),
        ([CONFIG, "fsdp_0/__0_0.distcp"], CONFIG, "fsdp_0/__0_0.distcp"),
        (
            ["a/huggingface/config.json", "a/model_world_size_2_rank_1.pt", "a/optim.pt"],
            "a/huggingface/config.json",
            "a/model_world_size_2_rank_1.pt",
        ),
        (
            [CONFIG, *(f"global_step{n}/mp_rank_00_model_states.pt" for n in (9, 10))],
            CONFIG,
            "global_step10/mp_rank_00_model_states.pt",
        ),
    ]:
        with subtests.test(names=names):
            assert select(names, "org/name") == FileSelection(config=config, weights=weights)
