"""The differences between stored and expected tensors, as probes of an engine."""

from hypothesis import given
from hypothesis import strategies as st

from auditor.engines.differences import Shapes, differences, kind_of
from auditor.engines.knowledge import EngineEntry, SoundVariant

_SOUND: Shapes = {
    "model.embed_tokens.weight": (256, 64),
    **{
        f"model.layers.{layer}.{name}": shape
        for layer in range(3)
        for name, shape in {
            "input_layernorm.weight": (64,),
            "self_attn.q_proj.weight": (64, 64),
            "self_attn.k_proj.weight": (32, 64),
            "self_attn.v_proj.weight": (32, 64),
            "mlp.gate_proj.weight": (128, 64),
            "mlp.up_proj.weight": (128, 64),
            "mlp.down_proj.weight": (64, 128),
        }.items()
    },
    "model.norm.weight": (64,),
    "lm_head.weight": (256, 64),
}
_KINDS = tuple(sorted(set(map(kind_of, _SOUND))))
_ENTRY = EngineEntry(
    kinds=_KINDS,
    variants=(SoundVariant(kinds=tuple(range(len(_KINDS))), loads=True),),
    raises=frozenset({"strip model.", "add module."}),
    loads=frozenset({"layer"}),
)


def _probes(stored: Shapes) -> list[tuple[str, str]]:
    return [(one.probe, one.kind) for one in differences(stored, _SOUND, _ENTRY)]


def test_a_kind_has_stars_in_place_of_numbers() -> None:
    assert kind_of("model.layers.31.mlp.experts.7.w1.weight") == (
        "model.layers.*.mlp.experts.*.w1.weight"
    )
    assert kind_of("model.conv1d.weight") == "model.conv1d.weight"


def test_equal_tensors_have_no_difference() -> None:
    assert _probes(_SOUND) == []


def test_a_lost_prefix_is_one_difference() -> None:
    stored = {name.removeprefix("model."): shape for name, shape in _SOUND.items()}
    assert _probes(stored) == [("strip model.", "")]


def test_an_added_prefix_hides_no_other_difference() -> None:
    stored = {
        f"module.{name}": shape for name, shape in _SOUND.items() if "norm.weight" not in name
    }
    assert _probes(stored) == [
        ("add module.", ""),
        ("missing", "model.layers.*.input_layernorm.weight"),
        ("missing", "model.norm.weight"),
    ]


def test_a_layer_beyond_the_depth_is_one_difference() -> None:
    more = {
        name.replace(".2.", ".3."): shape for name, shape in _SOUND.items() if ".layers.2." in name
    }
    assert set(_probes({**_SOUND, **more})) == {("layer", "")}


def test_a_tensor_lost_in_one_layer_is_partly_missing() -> None:
    stored = {
        name: shape for name, shape in _SOUND.items() if name != "model.layers.1.mlp.up_proj.weight"
    }
    assert _probes(stored) == [("some", "model.layers.*.mlp.up_proj.weight")]


def test_a_layer_that_is_missing_as_a_whole_is_one_difference() -> None:
    stored = {name: shape for name, shape in _SOUND.items() if ".layers.1." not in name}
    assert _probes(stored) == [("layer missing", "")]


def test_fused_projections_are_neither_missing_nor_extra() -> None:
    stored = {name: shape for name, shape in _SOUND.items() if ".self_attn." not in name}
    stored |= {f"model.layers.{layer}.self_attn.qkv_proj.weight": (128, 64) for layer in range(3)}
    assert _probes(stored) == [("fused qkv", "")]
    biases = {f"model.layers.0.self_attn.{part}_proj.bias": (64,) for part in "qkv"}
    fused = {**stored, "model.layers.0.self_attn.qkv_proj.bias": (192,)}
    [found] = differences(fused, {**_SOUND, **biases}, _ENTRY)
    assert found.probe == "fused qkv otherwise"  # no save with biases was fused


def test_a_shape_differs_by_side_and_direction() -> None:
    stored = {**_SOUND, "lm_head.weight": (512, 64), "model.norm.weight": (32,)}
    stored["model.layers.0.mlp.down_proj.weight"] = (64, 64)
    assert set(_probes(stored)) == {
        ("rows+", "lm_head.weight"),
        ("rows-", "model.norm.weight"),
        ("columns-", "model.layers.*.mlp.down_proj.weight"),
    }


def test_a_shape_of_another_rank_is_a_change_that_no_probe_makes() -> None:
    assert _probes({**_SOUND, "model.norm.weight": (64, 1)}) == [("", "model.norm.weight")]


_names = st.sampled_from(sorted(_SOUND))
_strange = st.sampled_from(["unknown.weight", "model.layers.0.unknown.weight", "model.layers.9.x"])


@given(lost=st.sets(_names), added=st.sets(_strange), reshaped=st.sets(_names))
def test_every_tensor_that_differs_is_in_one_difference(
    lost: set[str], added: set[str], reshaped: set[str]
) -> None:
    if len(lost) > len(_SOUND) // 2:
        lost = set()
    stored = {
        name: (*shape[:-1], shape[-1] + 1) if name in reshaped else shape
        for name, shape in _SOUND.items()
        if name not in lost
    } | dict.fromkeys(added, (1,))
    names = [name for one in differences(stored, _SOUND, _ENTRY) for name in one.names]
    assert sorted(names) == sorted({*lost, *added, *(reshaped - lost)})
