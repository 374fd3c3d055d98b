"""What files and configs get wrong: each row changes a sound packed weight or its settings."""

import re

import pytest
from support.layouts.packed import faults, pieces, says, stored
from support.layouts.sound import (
    SHAPE,
    SOUND,
    VPTQ,
    WEIGHTS,
    changed,
    groups,
    unpacked_of,
)
from support.layouts.tables import (
    M,
    W,
    below,
    gemm,
    gemv_fast,
    gptq,
    hqq,
    marlin,
    mlx,
    quanto,
    scaled,
    scheme,
)

from auditor.layouts import unknown_quantization, unpack_tensors
from auditor.layouts.packing import PLAIN

INT8 = {"num_bits": 8, "type": "int", "strategy": "channel"}
FLOAT8 = {"num_bits": 8, "type": "float"}
STATIC = {"dynamic": False}
FAULTS = [  # a file, changed tensors, changed settings, and a part of the reason
    ("aqlm", {}, {"in_group_size": 4}, "codebooks is .* a in_group_size of 8; the config declares"),
    ("aqlm", {}, {"nbits_per_codebook": 8}, "nbits_per_codebook of 16; the config declares 8"),
    ("aqlm", {"codes": ("I8", (256, 64, 1))}, {}, "codes is I8, expected I16 or I32"),
    ("auto_round", {}, {"bits": 8}, "bits of quantization_config is 8, stored are 4"),
    ("auto_round", {}, {"packing_format": "auto_round:awq"}, "is 'auto_round:awq', stored is gptq"),
    ("auto_round", {}, {"extra_config": {M: {"bits": 8}}}, "extra_config .* is 8"),
    ("auto_round", {}, {"extra_config": {M: {"group_size": 32}}}, r"expected \(16, 256\)"),
    ("auto_round", {}, {"extra_config": {r"0\.mlp\.": {"bits": 2}}}, "extra_config .* is 2"),
    ("auto_round", {"act_scales": ("BF16", (3,))}, {}, r"act_scales is \(3,\), expected \(1,\)"),
    ("awq", {}, {"bits": 8}, "bits of quantization_config is 8, stored are 4"),
    ("awq", {}, {"group_size": 64}, r"scales is \(4, 256\), expected \(8, 256\)"),
    ("awq", {}, {"version": "gemv"}, "version of quantization_config is gemv, stored is gemm"),
    ("awq", {"qweight": ("F32", (512, 32))}, {}, "qweight is F32 .*, expected I16 or"),
    ("bitsandbytes", {}, {"load_in_4bit": False, "load_in_8bit": True}, "load_in_8bit .* is true"),
    ("bitsandbytes", {"weight": ("F16", SHAPE)}, {}, "weight is F16 .*, expected one column"),
    (
        "bitsandbytes",
        {"weight.absmax": ("U8", (2048,))},
        {},
        "without its nested_absmax and nested",
    ),
    ("bitsandbytes", {"SCB": ("F32", (256,))}, {}, "4 bits, and has an SCB"),
    ("compressed_tensors", {"weight_shape": ("I64", (3,))}, {}, r"weight_shape is \(3,\)"),
    (
        "compressed_tensors",
        {},
        groups(scheme(**WEIGHTS, symmetric=False)),
        "is stored without its weight_zero_point",
    ),
    (
        "compressed_tensors",
        {},
        groups(scheme(**INT8), format="int-quantized"),
        "the config's format int-quantized stores weight, the file weight_packed",
    ),
    (
        "compressed_tensors",
        {"k_scale": ("F32", (3,))},
        {},
        r"a scale of the KV cache is \(3,\), expected one number, or one a head",
    ),
    ("compressed_tensors", {}, {"kv_cache_scheme": STATIC}, "not dynamic, but no k_scale"),
    (
        "compressed_tensors",
        {"weight_packed": ("I32", (512,))},
        {},
        r"weight_packed is I32 \(512,\), expected rows and columns",
    ),
    ("eetq", {"weight": ("F16", (512, 256))}, {}, "weight is F16 .*, expected I8"),
    ("eetq", {"weight": ("I8", (512,))}, {}, r"weight is I8 \(512,\), expected \(in, out\)"),
    ("fp8", {"weight": ("BF16", SHAPE)}, {}, "weight is BF16 .*, expected F4 or F8_E4M3"),
    ("fp8", {}, {"activation_scheme": "static"}, "is stored without its input_scale"),
    ("fp8", {"input_scale": ("F32", (2,))}, {}, r"input_scale is \(2,\), expected one number"),
    ("fp8", {"weight_scale": ("F32", ())}, {}, "the weight has another scale"),
    ("fp8", {}, {"rows": True}, r"scale is \(2, 4\), expected \(256, 1\)"),
    ("gptq", {"g_idx": None}, {"desc_act": True}, "is stored without its g_idx"),
    ("gptq", {}, {"bits": 8}, "bits of quantization_config is 8, stored are 4"),
    ("gptq", {}, {"group_size": 64}, r"scales is \(4, 256\), expected \(8, 256\)"),
    ("gptq", {}, {"checkpoint_format": "marlin"}, "checkpoint_format .* is marlin, stored is gptq"),
    ("gptq", {"qweight": ("F16", (64, 256))}, {}, "qweight is F16 .*, expected I16 or"),
    ("gptq", {"qweight": ("I32", (64,))}, {}, "expected a matrix of integers"),
    ("hqq", {"nbits": None, "axis": None}, {}, "is stored without its nbits and axis"),
    ("hqq", {"W_q": ("F64", (1024, 64))}, {}, "W_q is F64 .*, expected BF16"),
    ("hqq", hqq(256, 512, bits=2), {}, "nbits of the config is 4, stored are 2"),
    ("hqq", hqq(256, 256), {}, r"holds 65,536 numbers, expected \(256, 512\)"),
    ("mlx", mlx(SHAPE, 8, 64), {}, "4 bits in groups of 64 is declared, stored is affine, 8 bits"),
    ("mlx", {"biases": None}, {}, "is stored without its biases"),
    ("mlx", {"weight": ("BF16", SHAPE)}, {}, "weight is BF16 .*, expected U32"),
    ("mlx", {"scales": ("U8", (256, 8))}, {}, "scales is U8, expected F16 or BF16 or F32"),
    (
        "mlx",
        {"global_scale": ("F32", ())},
        {},
        "has global_scale, expected none in the mode affine",
    ),
    ("mlx", {}, {M: False}, "is packed, but plain by quantization_config"),
    ("modelopt", scaled(SHAPE, ()), {}, "quant_algo .* is NVFP4, stored is FP8"),
    ("modelopt", {"pre_quant_scale": ("F32", (64,))}, {}, r"expected \(512,\)"),
    (
        "modelopt",
        {"svdquant_lora_a": ("BF16", (32, 512)), "svdquant_lora_b": ("BF16", (256, 16))},
        {},
        r"svdquant_lora_b is \(256, 16\), expected \(256, 32\)",
    ),
    ("quanto", {}, {"weights": "int2"}, "weights of the config have 2 bits, stored are 4"),
    ("quanto", quanto(256, 1024, 4), {}, r"holds 262,144 numbers, expected \(256, 512\)"),
    ("torchao", {"_weight_qdata": ("I64", SHAPE)}, {}, "expected a dtype of a class of torchao"),
    ("torchao", {"_weight_qdata": ("I8", (256,))}, {}, "expected two axes or more"),
    ("torchao", {"_weight_per_tensor_scale": ("F32", (64,))}, {}, r"expected \(1,\)"),
    ("vptq", {}, {"config_for_layers": {}}, "expected vector_lens, num_centroids and group_size"),
    ("vptq", {}, {"config_for_layers": {M: VPTQ | {"group_num": 2}}}, r"expected \(2, 32, "),
    ("vptq", {"perm": ("I16", (95,))}, {}, r"perm is \(95,\), expected \(512,\)"),
]


def test_what_cannot_be_is_a_fault(subtests):
    for file, changes, settings, reason in FAULTS:
        with subtests.test(file=file, changes=changes, settings=settings, reason=reason):
            unpacked = unpacked_of(file, changed(file, changes), SOUND[file][1] | settings)
            assert any(re.search(reason, found) for found in faults(unpacked)), faults(unpacked)


POSSIBLE = [  # as above, without a fault
    ("aqlm", {}, {"in_group_size": 8, "nbits_per_codebook": 16}),
    ("auto_round", gptq(*SHAPE, group=512), {"group_size": -1}),
    ("auto_round", {"act_scales": ("BF16", (1,))}, {"act_bits": 8}),
    ("auto_round", {}, {"bits": 8, "dynamic": {"+:.*up_proj.*": {"bits": 4}}}),
    ("auto_round", {}, {"extra_config": {r"(mlp)\.\1": {"bits": 8}}}),  # cannot be followed
    ("awq", gemm(*SHAPE, group=512), {"group_size": -1}),
    ("awq", {**marlin(*SHAPE, names=("qweight", "scales")), "qzeros": None}, {"version": "marlin"}),
    ("awq", {**gemv_fast(*SHAPE, zeros="scaled_zeros"), "qzeros": None}, {"version": "llm-awq"}),
    ("awq", {}, {"version": "exllama"}),
    ("awq", {"act.scales": ("F16", (512,))}, {}),  # divisors of an activation
    ("bitnet", {"bias": ("BF16", (256,))}, {}),
    ("bitsandbytes", {}, {"llm_int8_skip_modules": [None, 3, ["model"]]}),
    ("compressed_tensors", {}, groups(scheme(**WEIGHTS), ignore=[r"re:(q)\1.*"])),
    ("fp8", scaled(SHAPE, (1,)) | {"weight_scale_inv": None}, {}),  # an embedding beside linears
    ("fp8", scaled(SHAPE, (256, 1)) | {"weight_scale_inv": None}, {"rows": True}),
    ("fp8", {"input_scale": ("F32", ())}, {"activation_scheme": "static"}),
    ("fp8", {"k_scale": ("F32", (1,))}, {}),
    ("gptq", {"g_idx": None}, {}),
    ("gptq", {}, {"dynamic": {"+:.*up_proj": {"bits": 4}}, "bits": 8, "group_size": 32}),
    ("gptq", {"bias": ("F16", (256,))}, {}),
    ("gptq", gptq(256, 512, group=100), {"group_size": 100}),
    ("hqq", {"scale": None, "zero": None, "zero_scale": ("BF16", (2, 2048, 1))}, {}),
    ("hqq", {}, {"quant_config": {"mlp.up_proj": {"weight_quant_params": {"nbits": 4}}}}),
    ("mlx", mlx(SHAPE, 8, 32), {M: {"bits": 8, "group_size": 32}}),
    ("mlx", {"biases": None, "qbiases": ("BF16", (256, 8))}, {}),  # "metal" of transformers
    ("vptq", {}, {"config_for_layers": {}, "shared_layer_config": {"up_proj": VPTQ}}),
]


def test_what_can_be_is_no_fault(subtests):
    for file, changes, settings in POSSIBLE:
        with subtests.test(file=file, changes=changes, settings=settings):
            unpacked = unpacked_of(file, changed(file, changes), SOUND[file][1] | settings)
            assert (pieces(unpacked), unpacked.faults) == ({W: SHAPE}, ())


INVALID = [  # a setting of another type or size, and the words for it
    ("aqlm", {"num_codebooks": "1"}, "num_codebooks .* is the string '1'"),
    ("auto_round", {"bits": 12}, "bits .* is 12"),
    ("auto_round", {"extra_config": {M: 16}}, "a layer in extra_config .* is 16; an object"),
    ("auto_round", {"packing_format": 2**70}, "packing_format .*; a string is needed"),
    ("awq", {"w_bit": 4, "q_group_size": 0.5}, "q_group_size .* is 0.5"),
    ("compressed_tensors", {"config_groups": []}, "config_groups .* is a list"),
    ("compressed_tensors", {"config_groups": {"g": None}}, "'g' in config_groups .* is null"),
    ("compressed_tensors", groups({"weights": 4}), "weights of .* is 4; an object is needed"),
    ("compressed_tensors", groups(scheme(num_bits=True)), "num_bits .* is true"),
    ("compressed_tensors", groups(scheme(num_bits=10**400)), r"num_bits .* \(401 digits\)"),
    ("compressed_tensors", groups(scheme(group_size=-7)), "group_size .* is -7"),
    ("compressed_tensors", groups(scheme(strategy="group")), "strategy .* 'group', with"),
    ("compressed_tensors", groups(scheme(strategy="block", block_structure="2x")), "'2x'; tensor"),
    ("fp8", {"weight_block_size": [0, 1]}, "is a list; two sides above 0 are needed"),
    ("fp8", {"weight_block_size": 128}, "is 128; two sides above 0 are needed"),
    ("gptq", {"bits": True}, "bits of quantization_config is true"),
    ("gptq", {"group_size": {"a": 1}}, "group_size of quantization_config is an object"),
    ("mlx", {"bits": 0}, "is 0; 1, 2, 3, 4, 5, 6 or 8 is needed"),
    ("mlx", {"mode": {"a": 1}}, "mode .* is an object; one of affine"),
    ("mlx", {M: {"bits": "4"}}, "is the string '4'; 1, 2, 3"),
    ("modelopt", {"quant_algo": "NVFP5"}, "'NVFP5', which is not known here"),
    ("modelopt", {"group_size": -1}, "is -1; 1 to 16,777,215 is needed"),
    ("modelopt", {"quant_algo": "MIXED_PRECISION"}, "quantized_layers .* is null; an object"),
]


def test_an_invalid_setting_is_a_fault_and_the_tensors_are_read_without_it(subtests):
    for file, settings, reason in INVALID:
        with subtests.test(file=file, settings=settings, reason=reason):
            unpacked = unpacked_of(file, changed(file, {}), SOUND[file][1] | settings)
            assert set(pieces(unpacked)) == {W}
            assert any(re.search(reason, found) for found in faults(unpacked)), faults(unpacked)


# --- what is not read, and what is of no layout ---------------------------------------------------


def test_a_packing_of_auto_round_that_is_not_read_here_is_named(subtests):
    for settings, words in [
        ({"packing_format": "auto_round:fp8_static"}, "the packing_format 'auto_round:fp8_static'"),
        ({"packing_format": "auto_round:gptq:marlin"}, "format 'auto_round:gptq:marlin'"),
        ({"packing_format": "a:hpu\n\x1b"}, r"packing_format 'a:hpu\n\x1b'"),
        ({"packing_format": None, "backend": "qbits"}, "with the backend 'qbits'"),
        ({"data_type": 4}, "'auto_round:auto_gptq' and the data_type 4"),
        ({"extra_config": {M: {"bits": 8, "data_type": "mx_fp"}}}, "the data_type 'mx_fp'"),
        ({"packing_format": "auto_round:gptq:exllamav2"}, None),
        ({"packing_format": "auto_round:awq", "backend": "ipex"}, None),  # a kernel to load with
        ({"extra_config": {M: {"bits": 16, "data_type": "float"}}}, None),
    ]:
        with subtests.test(settings=settings, words=words):
            unknown = unknown_quantization(says("auto-round", **SOUND["auto_round"][1] | settings))
            assert unknown is None if words is None else words in unknown


def test_words_that_no_config_declares_are_taken_for_gptq_or_awq_where_they_may_be(subtests):
    for parts, name in [(gptq(*SHAPE), "gptq"), (gemm(*SHAPE), "awq"), (gemm(*SHAPE, 5), "auto-")]:
        with subtests.test(parts=parts, name=name):
            unpacked = unpack_tensors(stored(below(M, parts)), None, lambda _name: None)
            assert pieces(unpacked) == {W: SHAPE}
            assert unpacked.layout.startswith(name)
            assert "the config declares no quantization" in unpacked.faults[0].reason


def test_integers_and_scales_of_no_layout_are_plain(subtests):
    for parts in [
        {"weight": ("F8_E4M3", (4, 4))},  # cast, and never scaled
        {"weight": ("I8", (8, 8)), "scales": ("F16", (8,))},
        {"weight": ("BF16", (4, 4)), "weight_scale": ("F8_E4M3", (4, 1))},
        {"B": ("F32", (8, 8)), "s": ("F32", (8, 8)), "mask": ("U8", (8,))},
        {"absmax": ("F32", (8,)), "mask": ("U8", (8,))},
        {"codes": ("I16", (64, 12, 1))},
        {"indices": ("I32", (1, 8, 72))},
        {"down_proj_blocks": ("U8", (4, 64, 2, 16))},
        {"_weight_scale": ("F32", (8, 1)), "mask": ("U8", (8,))},
    ]:
        with subtests.test(parts=parts):
            assert unpack_tensors(stored(below(M, parts)), None, lambda _name: None) is PLAIN


@pytest.mark.slow
def test_a_pattern_of_extra_config_takes_no_time_whatever_it_is():
    extra = {"(a*)*" * 50 + "b" + "x" * n: {"bits": 2 + n % 7} for n in range(40)}
    table = {f"model.layers.{n}.{'a' * 60}.weight": ("BF16", (8, 8)) for n in range(200)}
    table |= changed("auto_round", {})
    unpacked = unpacked_of("auto_round", table, SOUND["auto_round"][1] | {"extra_config": extra})
    assert (pieces(unpacked), unpacked.faults) == ({W: SHAPE}, ())
