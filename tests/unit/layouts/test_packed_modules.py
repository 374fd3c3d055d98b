"""Which modules a config packs, and in which settings; what single layouts do of their own."""

from support.layouts.examples import layout_of
from support.layouts.packed import faults, opened, pieces, says
from support.layouts.sound import (
    INPUTS,
    OUT,
    SHAPE,
    SOUND,
    WEIGHTS,
    changed,
    groups,
    unpacked_of,
)
from support.layouts.tables import (
    EXPERTS,
    M,
    W,
    below,
    block_scaled,
    eight_bits,
    gemv,
    gptq,
    mxfp4_blocks,
    nvfp4,
    pack_quantized,
    scaled,
    scheme,
    torchao,
)

NEXT, DOWN = "model.layers.1.mlp.up_proj", "model.layers.1.mlp.down_proj"
INT8 = {"num_bits": 8, "type": "int", "strategy": "channel"}
FLOAT8 = {"num_bits": 8, "type": "float"}

# --- which modules are packed ---------------------------------------------------------------------

PLAIN_LINEAR = {f"{NEXT}.weight": ("BF16", SHAPE)}
LISTS = {  # a file -> settings that leave one module plain
    "aqlm": lambda module: {"linear_weights_not_to_quantize": [module]},
    "auto_round": lambda module: {"extra_config": {module: {"bits": 16}}},
    "awq": lambda module: {"modules_to_not_convert": [module]},
    "bitnet": lambda module: {"modules_to_not_convert": [module]},
    "bitsandbytes": lambda module: {"llm_int8_skip_modules": [module]},
    "compressed_tensors": lambda module: {"ignore": [module]},
    "eetq": lambda module: {"modules_to_not_convert": [module]},
    "fp8": lambda module: {"ignored_layers": [module]},
    "modelopt": lambda module: {"exclude_modules": [module]},
}


def halves(file):
    """A packed layer, and one with a packed and a plain module."""
    parts = SOUND[file][0]
    return below(M, parts) | below(DOWN, parts) | PLAIN_LINEAR


def test_a_list_names_the_plain_modules_and_no_packed_ones(subtests):
    for file, listing in LISTS.items():
        with subtests.test(file=file):
            settings = SOUND[file][1]
            [(reason, names)] = faults(
                unpacked_of(file, halves(file), settings | listing("x"))
            ).items()
            assert (names, "is plain, but not by" in reason) == (set(PLAIN_LINEAR), True)
            assert unpacked_of(file, halves(file), settings | listing(NEXT)).faults == ()
            [reason] = faults(unpacked_of(file, below(M, SOUND[file][0]), settings | listing(M)))
            assert "is packed, but plain by" in reason


SCHEMES = [  # further settings on which modules are packed; whether the plain one is a fault
    ("auto_round", {"extra_config": {".*1.mlp.up.*": {"bits": 16}}}, False),
    ("auto_round", {"block_name_to_quantize": f"model.layers.0, {DOWN}"}, False),
    ("auto_round", {"block_name_to_quantize": "model.layers"}, True),
    ("awq", {"modules_to_not_convert": [r"model\.layers\.1\.mlp\.up.*"]}, False),
    ("awq", {"modules_to_not_convert": [f"a{n}" for n in range(25_000)]}, False),  # too many
    ("bitnet", {"linear_class": "autobitlinear"}, False),
    ("bitsandbytes", {"llm_int8_skip_modules": ["language_model.model.layers.1.mlp.up"]}, False),
    ("compressed_tensors", {"ignore": [r"re:.*1\.mlp\.up_proj"]}, False),
    ("gptq", {}, True),
    ("gptq", {"dynamic": {"-:.*1.*": {}}}, False),
    ("gptq", {"modules_in_block_to_quantize": [["self_attn.q_proj"], ["mlp.down_proj"]]}, False),
    ("gptq", {"modules_in_block_to_quantize": [["mlp.up_proj"]]}, True),
    ("mlx", {}, False),
    ("mlx", {NEXT: {"bits": 4}}, True),
    ("modelopt", {}, False),  # no list
    ("modelopt", {"exclude_modules": ["*up_proj"]}, False),
    ("modelopt", {"exclude_modules": ["model.layers.0.mlp.gate*"]}, True),
    ("torchao", {"modules_to_not_convert": ["lm_head"]}, False),  # it loads plain ones
]


def test_a_plain_module_beside_packed_ones_has_to_follow_from_the_config(subtests):
    for file, settings, is_fault in SCHEMES:
        with subtests.test(file=file, settings=settings, is_fault=is_fault):
            found = faults(unpacked_of(file, halves(file), SOUND[file][1] | settings))
            plain = [
                names for reason, names in found.items() if reason.startswith("is plain, but not")
            ]
            assert plain == [set(PLAIN_LINEAR)] * is_fault


def test_an_output_layer_is_plain_if_the_config_of_compressed_tensors_says_so(subtests):
    for settings, is_fault in [
        ({}, True),
        ({"ignore": ["lm_head"]}, False),
        ({"ignore": ["re:.*lm_head"]}, False),
        ({"ignore": ["language_model.lm_head"]}, False),  # of a model around this one
        (groups(scheme(**WEIGHTS, targets=["re:.*_proj$"])), False),
    ]:
        with subtests.test(settings=settings, is_fault=is_fault):
            table = changed("compressed_tensors", {}) | {"lm_head.weight": ("BF16", (96, 512))}
            unpacked = unpacked_of(
                "compressed_tensors", table, SOUND["compressed_tensors"][1] | settings
            )
            assert [name for one in faults(unpacked).values() for name in one] == [
                "lm_head.weight"
            ] * is_fault


def test_an_output_layer_outside_a_list_is_packed_unless_loading_leaves_it_plain(subtests):
    for file in ["bitnet", "bitsandbytes", "eetq", "fp8", "awq", "aqlm"]:
        with subtests.test(file=file):
            table = changed(file, {}) | {"lm_head.weight": ("BF16", (96, 512))}
            found = faults(
                unpacked_of(file, table, SOUND[file][1] | LISTS[file]("model.layers.1.mlp"))
            )
            is_fault = file != "awq"
            assert [name for one in found.values() for name in one] == ["lm_head.weight"] * is_fault


def test_a_packed_router_is_a_fault_because_no_class_has_a_linear_there(subtests):
    for router, is_fault in [("gate", True), ("shared_expert_gate", False)]:
        with subtests.test(router=router, is_fault=is_fault):
            mlp = "model.layers.0.mlp"
            table = below(f"{mlp}.experts.0.up_proj", gptq(*SHAPE))
            table |= below(f"{mlp}.{router}", gptq(64, 512))
            found = faults(unpacked_of("gptq", table, SOUND["gptq"][1]))
            assert list(found.values()) == [{f"{mlp}.gate.qweight"}] * is_fault


# --- settings by module ---------------------------------------------------------------------------


def test_a_name_comes_before_an_expression_and_that_before_a_class():
    declared = groups(
        scheme(**WEIGHTS),
        scheme(num_bits=8, group_size=64, targets=[r"re:.*q_proj$"]),
        scheme(num_bits=2, group_size=16, targets=["a.q_proj"]),
    )
    table = {
        **below("a.k_proj", pack_quantized(*SHAPE)),
        **below("b.q_proj", pack_quantized(*SHAPE, 8, 64)),
        **below("a.q_proj", pack_quantized(*SHAPE, 2, 16)),
    }
    # Older versions of transformers nest the settings one level deeper.
    for settings in (declared, {"quantization_config": declared}):
        unpacked = unpacked_of("compressed_tensors", table, settings)
        assert (set(pieces(unpacked).values()), faults(unpacked)) == ({SHAPE}, {})


def test_a_weight_of_8_bits_whose_scales_are_lost_is_no_plain_one(subtests):
    for dtype in ["I8", "F8_E4M3"]:
        with subtests.test(dtype=dtype):
            weights = INT8 if dtype == "I8" else FLOAT8 | {"strategy": "channel"}
            table = below(M, scaled(SHAPE, (256, 1), dtype)) | {f"{NEXT}.weight": (dtype, SHAPE)}
            unpacked = unpacked_of("compressed_tensors", table, groups(scheme(**weights)))
            assert set(pieces(unpacked)) == {W, f"{NEXT}.weight"}
            assert faults(unpacked) == {"is stored without its weight_scale": {f"{NEXT}.weight"}}


def test_sparse_bitmasks_are_unpacked_although_nothing_loads_them():
    # compressed_tensors 0.9.4, compressors/sparse_compressors/sparse_bitmask.py; 0.20 has none.
    table = below(
        W,
        {
            "compressed": ("F16", (70,)),
            "bitmask": ("U8", (256, 64)),
            "shape": ("I64", (2,)),
            "row_offsets": ("I64", (256,)),
        },
    )
    unpacked = unpacked_of("compressed_tensors", table, {})
    assert pieces(unpacked) == {W: SHAPE}
    [(reason, names)] = faults(unpacked).items()
    assert ("no longer unpacks" in reason, names) == (True, {f"{W}.compressed"})


def test_mixed_precision_names_the_algorithm_of_each_module():
    layers = {"a.q": {"quant_algo": "NVFP4", "group_size": 16}, "a.o": {"quant_algo": "FP8"}}
    table = {
        **below("a.q", nvfp4(64, 8)),
        **below("a.o", scaled((8, 8), ()) | {"input_scale": ("F32", ())}),
        "a.k.weight": ("BF16", (8, 8)),
    }
    said = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    unpacked = unpacked_of("modelopt", table, said)
    assert pieces(unpacked) == {"a.q.weight": (64, 128), "a.o.weight": (8, 8)}
    assert faults(unpacked) == {}
    swapped = {"a.q": layers["a.o"], "a.o": layers["a.q"]}
    about = faults(unpacked_of("modelopt", table, said | {"quantized_layers": swapped})).values()
    assert {"a.q.weight"} in about
    assert {"a.o.weight"} in about


def test_every_layer_has_its_settings_of_extra_config():
    sizes = [(2, 16), (3, 32), (4, -1), (8, 16)]
    modules = [f"model.layers.{layer}.mlp.up_proj" for layer in range(len(sizes))]
    table, extra = {}, {}
    for module, (bits, group) in zip(modules, sizes, strict=True):
        table |= below(module, gptq(*SHAPE, bits, group, g_idx=False))
        extra[module] = {"bits": bits, "group_size": group}
    said = SOUND["auto_round"][1] | {"bits": 5, "block_name_to_quantize": "model.layers"}
    unpacked = unpacked_of("auto_round", table, said | {"extra_config": extra})
    assert [piece.dtype for piece in unpacked.tensors] == [f"INT{bits}" for bits, _ in sizes]
    assert unpacked.faults == ()
    wrong = extra | {modules[1]: {"bits": 6, "group_size": 32}}
    [names] = faults(unpacked_of("auto_round", table, said | {"extra_config": wrong})).values()
    assert names == {f"{modules[1]}.qweight"}


def test_experts_are_packed_in_the_bits_of_expert_dtype():
    module = f"{EXPERTS}.0.up_proj"
    four = below(module, scaled((64, 32), (64, 2), "I8", "weight_scale_inv", "F8_E8M0"))
    eight = below(module, block_scaled(64, 32, 128, 128))
    for table, declared in ((four, "fp8"), (eight, "fp4")):
        [reason] = faults(unpacked_of("fp8", table, {"expert_dtype": declared}))
        assert reason.startswith(f"expert_dtype is the string '{declared}', stored is")


def test_rows_of_experts_have_scales_in_the_way_of_fbgemm():
    parts = {
        "gate_up_proj": ("F8_E4M3", (4, 64, 96)),
        "gate_up_proj_scale": ("F32", (4, 1, 96)),
        "down_proj": ("F8_E4M3", (4, 48, 64)),
        "down_proj_scale": ("F32", (4, 64, 1)),
    }
    assert unpacked_of("fp8", below(EXPERTS, parts), {"rows": True}).faults == ()


def test_weights_of_bitnet_that_were_saved_after_loading_are_plain_beside_their_scale():
    unpacked = unpacked_of("bitnet", changed("bitnet", {"weight": ("BF16", SHAPE)}), {})
    assert (pieces(unpacked), unpacked.faults) == ({}, ())


def test_a_weight_that_the_architecture_does_not_have_is_as_many_numbers(subtests):
    for file in ["quanto", "hqq"]:
        with subtests.test(file=file):
            table, said = changed(file, {}), says(file, **SOUND[file][1])
            unpacked = opened(layout_of(file), table, said)
            assert (pieces(unpacked), unpacked.faults) == ({W: (OUT * INPUTS,)}, ())


def test_a_conv1d_has_its_inputs_first_as_a_plain_checkpoint_of_gpt2_has(subtests):
    for file, conv in [("gptq", gptq), ("auto_round", gptq)]:
        with subtests.test(file=file, conv=conv):
            module = "transformer.h.0.attn.c_attn"
            name, table = f"{module}.weight", below(module, conv(192, 64, group=32))
            settings = SOUND[file][1] | {"group_size": 32}
            unpacked = opened(layout_of(file), table, says(file, **settings), {name: (64, 192)})
            assert (pieces(unpacked), unpacked.faults) == ({name: (64, 192)}, ())


def test_gpt_oss_stores_its_experts_in_blocks_unless_the_config_leaves_them_alone():
    table = below(EXPERTS, mxfp4_blocks(4, 64, 2))
    said = says("mxfp4", modules_to_not_convert=["model.layers.*.mlp"])
    [reason] = faults(opened(layout_of("mxfp4"), table, said))
    assert "plain by modules_to_not_convert" in reason
    wrong = table | {f"{EXPERTS}.down_proj_blocks": ("U8", (4, 64, 2, 32))}
    [reason] = faults(opened(layout_of("mxfp4"), wrong, says("mxfp4")))
    assert reason.endswith("expected (experts, outputs, inputs / 32, 16)")


def test_the_forms_of_int8_and_gemv_are_checked_too():
    eight = below(M, eight_bits(SHAPE) | {"SCB": ("F32", (512,))})
    [reason] = faults(unpacked_of("bitsandbytes", eight, {}))
    assert reason.startswith("SCB is (512,), expected (256,)")
    scales = below(M, gemv(*SHAPE) | {"scales": ("F16", (256, 4))})
    [reason] = faults(unpacked_of("awq", scales, SOUND["awq"][1] | {"version": "gemv"}))
    assert reason.startswith("scales is (256, 4), expected (256, 8)")


def test_the_older_names_of_torchao_are_read_as_well():
    parts = torchao(*SHAPE, "INT4")
    table = {f"{M}.{last.replace('_weight_', 'weight:')}": one for last, one in parts.items()}
    table["model.norm.weight:_data"] = ("BF16", (512,))
    unpacked = unpacked_of("torchao", table, {})
    assert pieces(unpacked) == {W: SHAPE, "model.norm.weight": (512,)}
    assert unpacked.faults == ()


def test_experts_before_the_matrix_of_torchao_stay_there(subtests):
    for kind in ["INT8", "INT4"]:
        with subtests.test(kind=kind):
            table = {
                f"{EXPERTS}.{last.replace('_weight_', '_gate_up_proj_')}": (dtype, (4, *shape))
                for last, (dtype, shape) in torchao(64, 96, kind).items()
            }
            unpacked = unpacked_of("torchao", table, {})
            assert (pieces(unpacked), unpacked.faults) == (
                {f"{EXPERTS}.gate_up_proj": (4, 64, 96)},
                (),
            )
