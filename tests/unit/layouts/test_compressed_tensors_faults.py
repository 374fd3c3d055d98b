"""compressed-tensors: what does not fit, and what settings mean."""

import re

import pytest
from support.layouts.compressed import GOOD, NAME, W4, Q, below, config, packed_words, scheme, whole
from support.layouts.packed import faults, opened, pieces, says

from auditor.layouts.compressed_tensors import LAYOUT


def without(*names):
    return {name: described for name, described in GOOD.items() if name not in names}


PLAIN_BY_CONFIG = (
    "is packed, but plain by config_groups and `ignore` of quantization_config: "
    "loading expects floats; leave it out when you quantize"
)


@pytest.mark.parametrize(
    ("table", "declared", "reason"),
    [
        (
            {**GOOD, "weight_packed": ("I32", (64, 12))},
            W4,
            "weight_packed is (64, 12), expected (64, 16) for a weight of (64, 128), one for each ",
        ),
        (
            {**GOOD, "weight_scale": ("F16", (32, 4))},
            W4,
            (
                "weight_scale is (32, 4), expected (64, 4) for a weight of (64, 128), one for "
                "each 32 inputs of an output"
            ),
        ),
        (
            without("weight_scale", "weight_shape"),
            W4,
            "is stored without its weight_scale and weight_shape",
        ),
        (without("weight_packed"), W4, "is stored without its weight"),
        (
            {"weight": ("BF16", (64, 128)), "weight_scale": ("BF16", (64, 4))},
            W4,
            "weight is BF16 (64, 128), expected integers, or floats of 8 bits",
        ),
        (
            GOOD,
            config(scheme(num_bits=4, group_size=32, symmetric=False)),
            "is stored without its weight_zero_point",
        ),
        (
            {**GOOD, "weight_zero_point": ("I32", (7, 4))},
            config(scheme(num_bits=4, group_size=32, symmetric=False)),
            "weight_zero_point is (7, 4), expected (8, 4) for a weight of (64, 128)",
        ),
        (
            {**GOOD, "weight_g_idx": ("I32", (4,))},
            W4,
            "weight_g_idx is (4,), expected (128,) for a weight of (64, 128)",
        ),
        (GOOD, config(scheme(num_bits=4, group_size=32), ignore=[Q]), PLAIN_BY_CONFIG),
        (
            GOOD,
            config(scheme(num_bits=4, group_size=32), ignore=[r"re:.*self_attn\..*"]),
            PLAIN_BY_CONFIG,
        ),
        (GOOD, config(scheme(num_bits=4, group_size=32, targets=["re:.*mlp.*"])), PLAIN_BY_CONFIG),
        (
            whole(64, 128, (64, 1), "I8"),
            config(scheme(num_bits=8, strategy="channel"), format="pack-quantized"),
            "the config's format pack-quantized stores weight_packed, the file weight of I8",
        ),
        (
            whole(64, 128, (64, 1)),
            config(scheme(num_bits=8, type="float", strategy="channel", inputs={"dynamic": False})),
            "is stored without its input_scale",
        ),
        (
            {**whole(64, 128, (1,)), "input_scale": ("F32", (7,))},
            config(scheme(num_bits=8, type="float")),
            "input_scale is (7,), expected (1,) for a weight of (64, 128)",
        ),
        (
            GOOD,
            config(
                scheme(num_bits=4, group_size=32), kv_cache_scheme={"num_bits": 8, "dynamic": False}
            ),
            (
                "kv_cache_scheme of quantization_config is not dynamic, but no k_scale or v_scale "
                "is stored: loading would use scales of 1"
            ),
        ),
        (
            {**GOOD, "k_scale": ("F32", (3,))},
            W4,
            "a scale of the KV cache is (3,), expected one number, or one a head",
        ),
        (
            {**GOOD, "weight_packed": ("I32", (512,))},
            W4,
            "weight_packed is I32 (512,), expected rows and columns to unpack as pack-quantized",
        ),
    ],
)
def test_what_does_not_fit_is_a_fault_with_its_arithmetic(table, declared, reason):
    found = faults(opened(LAYOUT, below(Q, table), declared, {NAME: (64, 128)}))
    assert any(one.startswith(reason) for one in found), found


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"config_groups": []}, "config_groups of quantization_config is a list"),
        ({"config_groups": {"g": None}}, "'g' in config_groups of quantization_config is null"),
        ({"config_groups": {"g": {"weights": 4}}}, "weights of .* is 4; an object is needed"),
        ({"weights": {"num_bits": 0}}, "num_bits of .* is 0; 1 to 16 is needed"),
        ({"weights": {"num_bits": "4"}}, "num_bits of .* is the string '4'"),
        ({"weights": {"num_bits": True}}, "num_bits of .* is true"),
        ({"weights": {"num_bits": 10**400}}, r"num_bits of .* \(401 digits\)"),
        ({"weights": {"group_size": -7}}, "group_size of .* is -7"),
        ({"weights": {"strategy": "group"}}, "strategy of .* is the string 'group', with"),
        ({"weights": {"strategy": "group", "group_size": 0}}, "with group_size 0"),
        ({"weights": {"strategy": ["group"]}}, "strategy of .* is a list"),
        ({"weights": {"strategy": "block", "block_structure": [0, 1]}}, "strategy of .* block"),
        ({"weights": {"strategy": "block", "block_structure": "2x"}}, "'2x'; tensor, channel"),
    ],
)
def test_settings_that_mean_nothing_are_faults_and_the_tensors_speak(settings, reason):
    if "weights" in settings:
        settings = {"config_groups": {"g": {"targets": ["Linear"], **settings}}}
    unpacked = opened(
        LAYOUT, below(Q, GOOD), says("compressed-tensors", **settings), {NAME: (64, 128)}
    )
    assert set(pieces(unpacked)) == {NAME}
    assert any(re.search(reason, fault) for fault in faults(unpacked))


@pytest.mark.parametrize(
    ("ignore", "packed"),
    [("re:.*layers.1.*", False), ("model.layers.1.mlp.up_proj", False), ("lm_head", True)],
)
def test_a_plain_weight_among_packed_ones_is_a_fault_unless_it_is_ignored(ignore, packed):
    table = {
        **below("model.layers.0.mlp.up_proj", GOOD),
        **below("model.layers.1.mlp.down_proj", GOOD),
        **below("model.layers.0.mlp.down_proj", GOOD),
        "model.layers.1.mlp.up_proj.weight": ("BF16", (64, 128)),
        "model.layers.2.mlp.up_proj.weight": ("BF16", (64, 128)),  # a layer that nobody packed
        "lm_head.weight": ("BF16", (64, 128)),
        "model.layers.0.norm.weight": ("BF16", (64,)),
    }
    ignored = [ignore, "model.layers.1.mlp.down_proj_"]
    declared = config(scheme(num_bits=4, group_size=32), ignore=ignored)
    about = [names for reason, names in faults(opened(LAYOUT, table, declared)).items()]
    if packed:
        assert about == [{"model.layers.1.mlp.up_proj.weight"}]
    else:
        assert {"model.layers.1.mlp.up_proj.weight"} not in about


def test_of_several_targets_a_name_comes_before_an_expression_and_that_before_a_class():
    declared = config(
        scheme(num_bits=4, group_size=32),
        scheme(num_bits=8, group_size=64, targets=[r"re:.*q_proj$"]),
        scheme(num_bits=2, group_size=16, targets=["a.q_proj"]),
    )
    table = {
        **below("a.k_proj", packed_words(64, 128, 4, 32)),
        **below("b.q_proj", packed_words(64, 128, 8, 64)),
        **below("a.q_proj", packed_words(64, 128, 2, 16)),
    }
    unpacked = opened(LAYOUT, table, declared)
    assert set(pieces(unpacked).values()) == {(64, 128)}
    assert faults(unpacked) == {}


def test_a_pattern_that_cannot_be_read_leaves_the_tensors_to_speak():
    declared = config(
        scheme(num_bits=4, group_size=32), ignore=[r"re:(q)\1.*"], format="pack-quantized"
    )
    unpacked = opened(LAYOUT, below(Q, packed_words(64, 128, 8, 64)), declared, {NAME: (64, 128)})
    assert (pieces(unpacked), faults(unpacked)) == ({NAME: (64, 128)}, {})


def test_settings_one_level_deeper_are_found():
    inner = dict(config(scheme(num_bits=8, group_size=64)).settings)
    declared = says("compressed-tensors", quantization_config=inner, sparsity_config={})
    table = below(Q, packed_words(64, 128, 8, 64))
    assert pieces(opened(LAYOUT, table, declared)) == {NAME: (64, 128)}


INT8 = scheme(num_bits=8, type="int", strategy="channel", symmetric=True)
HEAD = {"lm_head.weight": ("BF16", (96, 128))}
OTHER = "model.layers.0.mlp.up_proj"


@pytest.mark.parametrize(
    ("declared", "alarmed"),
    [
        (config(INT8), True),
        (config(INT8, ignore=["lm_head"]), False),
        (config(INT8, ignore=["re:.*lm_head"]), False),
        (config(INT8, ignore=["language_model.lm_head"]), False),  # of a model around this one
        (config(INT8 | {"targets": ["re:.*_proj$"]}), False),
    ],
)
def test_an_output_layer_is_plain_if_the_list_names_it(declared, alarmed):
    """It is a linear by any class, and loading makes all of those that no list names packed."""
    table = {**below(Q, whole(64, 128, (64, 1), "I8")), **HEAD}
    unpacked = opened(LAYOUT, table, declared, {NAME: (64, 128)})
    assert [name for names in faults(unpacked).values() for name in names] == [*HEAD] * alarmed


@pytest.mark.parametrize("dtype", ["I8", "F8_E4M3"])
def test_a_weight_of_8_bits_whose_scales_are_lost_is_no_plain_one(dtype):
    kind = "int" if dtype == "I8" else "float"
    declared = config(scheme(num_bits=8, type=kind, strategy="channel"))
    table = {
        **below(Q, whole(64, 128, (64, 1), dtype)),
        **below(OTHER, {"weight": (dtype, (64, 128))}),
        "norm.weight": ("BF16", (128,)),
    }
    unpacked = opened(LAYOUT, table, declared, {NAME: (64, 128)})
    assert set(pieces(unpacked)) == {NAME, f"{OTHER}.weight"}
    [(reason, names)] = faults(unpacked).items()
    assert reason == "is stored without its weight_scale"
    assert list(names) == [f"{OTHER}.weight"]


@pytest.mark.parametrize(("ignored", "alarmed"), [((), True), ((f"{Q[:-6]}o_proj",), False)])
def test_a_plain_projection_of_a_packed_layer_is_a_fault_unless_it_is_ignored(ignored, alarmed):
    """Loading packs each linear that `ignore` does not list, and makes up its scales."""
    up, output = OTHER, f"{Q[:-6]}o_proj"
    declared = config(INT8, ignore=["re:.*lm_head", Q, *ignored])
    table = {
        **below(up, whole(64, 128, (64, 1), "I8")),
        f"{Q}.weight": ("BF16", (64, 64)),
        f"{output}.weight": ("BF16", (64, 64)),
    }
    unpacked = opened(LAYOUT, table, declared, {f"{up}.weight": (64, 128)})
    assert list(faults(unpacked).values()) == [{f"{output}.weight"}] * alarmed
    assert all("add these modules to `ignore`" in reason for reason in faults(unpacked))
