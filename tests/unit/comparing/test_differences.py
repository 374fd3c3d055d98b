"""Two checkpoints beside each other: ten kinds of spoilt copies, and what was lost in each."""

import json
from pathlib import Path

import pytest
from support.builders import safetensors_bytes

import auditor
from auditor.comparing import Comparison, compare, side_of
from auditor.downloader.fetching import fetch
from auditor.errors import Reason, SourceError

CONFIG = {"vocab_size": 8, "hidden_size": 4, "num_hidden_layers": 3, "dtype": "float32"}
TENSORS: dict[str, tuple[str, tuple[int, ...]]] = {
    "vision_tower.patch.weight": ("F32", (4, 3)),
    "vision_tower.norm.weight": ("F32", (4,)),
    "model.embed_tokens.weight": ("F32", (8, 4)),
    **{f"model.layers.{n}.mlp.weight": ("F32", (4, 4)) for n in range(3)},
    **{f"model.layers.{n}.mlp.bias": ("F32", (4,)) for n in range(3)},
    "model.norm.weight": ("F32", (4,)),
    "mtp.layers.0.weight": ("F32", (4, 4)),
    "lm_head.weight": ("F32", (8, 4)),
}


def written(folder: Path, tensors, config=None, *, shards: int = 1, first: int = 0) -> str:
    folder.mkdir()
    names = list(tensors)
    parts = [names[shard::shards] for shard in range(shards)]
    parts = parts[first:] + parts[:first]
    weight_map = {}
    for number, part in enumerate(parts, start=1):
        file = (
            f"model-{number:05}-of-{shards:05}.safetensors" if shards > 1 else "model.safetensors"
        )
        content = safetensors_bytes({name: tensors[name] for name in part})
        (folder / file).write_bytes(content)
        weight_map |= dict.fromkeys(part, file)
    if shards > 1:
        index = {"metadata": {"total_size": 0}, "weight_map": weight_map}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config or CONFIG))
    return str(folder)


def compared(tmp_path: Path, tensors, config=None, **options) -> Comparison:
    before = written(tmp_path / "before", TENSORS, **options)
    after = written(tmp_path / "after", tensors, config, **options)
    return compare(side_of(fetch(before)), side_of(fetch(after)))


def without(*signs: str):
    return {name: one for name, one in TENSORS.items() if not any(sign in name for sign in signs)}


@pytest.mark.parametrize(
    ("sign", "module", "what", "parameters"),
    [
        ("vision_tower.", "vision_tower", "the vision tower", 16),
        ("lm_head.", "lm_head", "the head", 32),
        ("mtp.", "mtp", "layers that predict further tokens", 16),
        ("embed_tokens", "model.embed_tokens", "embeddings", 32),
        ("layers.2.mlp", "model.layers.2", "a layer", 20),
        ("model.norm", "model.norm", "a norm", 4),
    ],
)
def test_what_was_lost_is_named(tmp_path, sign, module, what, parameters):
    found = compared(tmp_path, without(sign))
    (lost,) = found.lost
    assert (lost.module, lost.what, lost.parameters) == (module, what, parameters)
    assert not found.same
    (_, before, after), *_ = found.modules
    assert before - after == parameters


def test_biases_that_are_gone_are_removed_tensors_and_no_module(tmp_path):
    found = compared(tmp_path, without(".bias"))
    assert found.lost == ()
    assert found.removed == tuple(f"model.layers.{n}.mlp.bias" for n in range(3))


def test_a_resized_vocabulary_is_explained_by_its_key(tmp_path):
    larger = dict.fromkeys(("model.embed_tokens.weight", "lm_head.weight"), ("F32", (9, 4)))
    found = compared(tmp_path, {**TENSORS, **larger}, {**CONFIG, "vocab_size": 9})
    assert {one.name for one in found.reshaped} == set(larger)
    assert {(one.before, one.after) for one in found.reshaped} == {("8 x 4", "9 x 4")}
    (key,) = found.keys
    assert (key.key, key.before, key.after, key.explains) == ("vocab_size", 8, 9, 2)


def test_fewer_layers_are_explained_by_their_key(tmp_path):
    found = compared(tmp_path, without("layers.2."), {**CONFIG, "num_hidden_layers": 2})
    assert [(one.key, one.explains) for one in found.keys] == [("num_hidden_layers", 2)]


def test_another_dtype_is_reported_and_loses_nothing(tmp_path):
    found = compared(tmp_path, {name: ("BF16", shape) for name, (_, shape) in TENSORS.items()})
    assert {(one.before, one.after) for one in found.retyped} == {("F32", "BF16")}
    assert len(found.retyped) == len(TENSORS)
    assert not found.lost


def test_a_prefix_that_was_put_before_names_is_no_loss(tmp_path):
    found = compared(tmp_path, {f"module.{name}": one for name, one in TENSORS.items()})
    assert found.renamed == ("", "module.")
    assert (found.removed, found.added, found.lost) == ((), (), ())
    assert not found.same


def test_tensors_that_moved_between_shards_are_reported(tmp_path):
    before = written(tmp_path / "before", TENSORS, shards=2)
    after = written(tmp_path / "after", TENSORS, shards=2, first=1)
    found = compare(side_of(fetch(before)), side_of(fetch(after)))
    assert {one.name for one in found.moved} == set(TENSORS)


def test_one_file_and_its_shards_are_the_same(tmp_path):
    before = written(tmp_path / "before", TENSORS)
    after = written(tmp_path / "after", TENSORS, shards=2)
    found = compare(side_of(fetch(before)), side_of(fetch(after)))
    assert found.same
    assert {first == second for _, first, second in found.modules} == {True}


def test_packed_weights_are_compared_as_the_tensors_that_they_are(tmp_path):
    """GPTQ, 4 bits, groups of 128: eight rows of the input in an I32."""
    plain = {"model.layers.0.mlp.down_proj.weight": ("F16", (256, 128))}
    base = "model.layers.0.mlp.down_proj"
    packed = {
        f"{base}.qweight": ("I32", (16, 256)),
        f"{base}.qzeros": ("I32", (1, 32)),
        f"{base}.scales": ("F16", (1, 256)),
        f"{base}.g_idx": ("I32", (128,)),
    }
    settings = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}
    before = written(tmp_path / "before", plain)
    after = written(tmp_path / "after", packed, {**CONFIG, "quantization_config": settings})
    found = compare(side_of(fetch(before)), side_of(fetch(after)))
    assert (found.removed, found.added, found.reshaped, found.lost) == ((), (), (), ())
    assert found.layouts[1]
    assert found.modules[0] == ("(whole model)", 256 * 128, 256 * 128)


def test_a_config_alone_cannot_be_compared(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(SourceError, match="no weights") as caught:
        side_of(fetch(str(tmp_path)))
    assert caught.value.reason is Reason.NO_WEIGHTS


def test_from_python_it_is_what_the_command_prints(tmp_path):
    before = written(tmp_path / "before", TENSORS)
    after = written(tmp_path / "after", without("lm_head."))
    found = auditor.diff(before, after)
    assert isinstance(found, auditor.Comparison)
    assert [one.module for one in found.lost] == ["lm_head"]
    assert repr(found).endswith(", lost the head, 1 removed)")
    [lost] = found.to_dict()["lost"]
    assert (lost["lost"], lost["parameters"]) == ("lm_head", 32)
    same = auditor.diff(before, before)
    assert same.same
    assert repr(same).endswith(", the same)")
    with pytest.raises(auditor.SourceError, match="no"):
        auditor.diff(before, str(tmp_path))
