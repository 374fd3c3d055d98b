import tempfile
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from engines import probes  # noqa: E402
from engines.saves import Save, kind_of, kinds  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

LAYERS = {
    f"model.layers.{n}.{part}.weight": shape
    for n in range(2)
    for part, shape in {
        "self_attn.q_proj": (64, 64),
        "self_attn.k_proj": (32, 64),
        "self_attn.v_proj": (32, 64),
        "mlp.gate_proj": (128, 64),
        "mlp.up_proj": (128, 64),
        "mlp.down_proj": (64, 128),
        "input_layernorm": (64,),
    }.items()
}
SHAPES = {"model.embed_tokens.weight": (256, 64), **LAYERS, "lm_head.weight": (256, 64)}
SAVE = Save(
    "LlamaForCausalLM",
    "llama",
    {"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    {name: torch.zeros(shape, dtype=torch.bfloat16) for name, shape in SHAPES.items()},
    "model.",
    "lm_head.weight",
    (256, 64),
)
ALL = list(probes.probes(SAVE, {}))


def changed(probe):
    return dict(ALL)[probe]()


def shapes_of(tensors):
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def test_a_probes_id_is_its_own():
    names = [name for name, _ in ALL]
    assert len(names) == len(set(names))


def test_each_probe_changes_something_and_never_the_save(subtests):
    for probe, change in ALL:
        with subtests.test(probe=probe, change=change):
            written = change()
            assert (written.config, shapes_of(written.tensors), written.files) != (
                SAVE.config,
                SHAPES,
                "",
            )
            assert shapes_of(SAVE.tensors) == SHAPES
            assert set(SAVE.config) == {"model_type", "architectures"}
            if probe.split(" ")[0] not in {"declared", "packed", "class"}:
                assert written.config == SAVE.config


def test_missing_leaves_out_a_kind_and_nothing_else(subtests):
    for kind in kinds(SHAPES):
        with subtests.test(kind=kind):
            left = changed(f"missing {kind}").tensors
            assert set(left) == {name for name in SHAPES if kind_of(name) != kind}


def test_some_leaves_out_the_last_layers_tensor_alone(subtests):
    for kind in kinds(LAYERS):
        with subtests.test(kind=kind):
            left = changed(f"some {kind}").tensors
            assert set(SHAPES) - set(left) == {kind.replace("*", "1")}


def test_a_changed_size_is_doubled_or_halved_in_one_dimension(subtests):
    for probe in [name for name, _ in ALL if name[:4] in {"rows", "colu"}]:
        with subtests.test(probe=probe):
            side, _, kind = probe.partition(" ")
            place, factor = (
                (0 if side.startswith("rows") else -1),
                (2 if side.endswith("+") else 0.5),
            )
            for name, shape in shapes_of(changed(probe).tensors).items():
                expected = list(SHAPES[name])
                if kind_of(name) == kind:
                    expected[place] = int(expected[place] * factor)
                assert shape == tuple(expected)


def test_an_extra_tensor_is_added_to_the_others():
    for probe, change in ALL:
        if probe.startswith("extra "):
            added = set(change().tensors) - set(SHAPES)
            assert {kind_of(name) for name in added} >= {probe.removeprefix("extra ")}
            assert set(change().tensors) >= set(SHAPES)


def test_a_layer_too_many_is_the_last_one_once_more():
    tensors = changed("layer").tensors
    added = set(tensors) - set(SHAPES)
    assert added == {name.replace(".1.", ".2.") for name in LAYERS if ".1." in name}


def test_fused_projections_have_the_rows_of_their_parts():
    shapes = shapes_of(changed("fused qkv").tensors)
    assert shapes["model.layers.1.self_attn.qkv_proj.weight"] == (128, 64)
    assert not [name for name in shapes if "q_proj" in name]


def test_stripped_and_added_prefixes_are_opposites():
    stripped = changed("strip model.").tensors
    again = {
        name if name == "lm_head.weight" else f"model.{name}": tensor
        for name, tensor in stripped.items()
    }
    assert shapes_of(again) == SHAPES


def test_safetensors_reads_what_is_written(subtests, tmp_path):
    for probe, change in ALL:
        with subtests.test(probe=probe, change=change):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            written = change()
            probes.write(place, written)
            stored = {}
            for path in sorted(place.glob("*.safetensors")):
                stored |= shapes_of(load_file(path))
            if probe in {"files torch", "files index absent"}:
                assert set(stored) < set(SHAPES)
            else:
                assert stored == shapes_of(written.tensors)


def test_a_missing_layer_is_the_last_one():
    left = changed("layer missing").tensors
    assert set(SHAPES) - set(left) == {name for name in LAYERS if ".1." in name}
