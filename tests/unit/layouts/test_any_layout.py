"""What holds of every layout, whatever the file and the config say: both are a stranger's."""

from collections import Counter
from importlib import import_module
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from auditor.errors import CheckpointError
from auditor.layouts import METHODS, unpack_tensors
from auditor.layouts.declared import declaration
from auditor.layouts.fused import separated
from auditor.layouts.packing import Declared, Layout, Stored, Unpacked
from auditor.tensors import DTYPE_BITS, StoredTensor

MODULES = (
    "",
    "lm_head",
    "model.layers.0.mlp.up_proj",
    "model.layers.1.mlp.up_proj",
    "model.layers.0.mlp.experts",
    "model.layers.0.mlp.switch_mlp.up_proj",
    "model.layers.0.self_attn",
    "blk.0",
    "blk.1",
    "line\nbreak.0.\x1b[31m",
)
# A layout's file -> the names that it knows, below a module; some parts have parts of their own.
MARKS = {
    "aqlm": "codes codebooks scales",
    "auto_round": "qweight qzeros scales g_idx act_scales w_bf16_to_fp8_scale",
    "awq": "qweight qzeros scaled_zeros scales",
    "bitnet": "weight weight_scale rms_norm.weight",
    "bitsandbytes": (
        "weight SCB weight_format weight.absmax weight.quant_map weight.nested_absmax "
        "weight.nested_quant_map weight.quant_state.bitsandbytes__nf4 "
        "weight.quant_state.bitsandbytes__fp4 weight.absmax.absmax SCB.absmax"
    ),
    "compressed_tensors": (
        "weight weight_packed compressed weight_scale weight_zero_point weight_g_idx "
        "weight_global_scale weight_shape input_scale input_global_scale k_scale bitmask shape "
        "row_offsets meta scale_packed"
    ),
    "eetq": "weight weight_scales",
    "fp8": (
        "weight weight_scale_inv weight_scale qscale_weight scale input_scale activation_scale "
        "input_scale_ub gate_up_proj gate_up_proj_scale gate_up_proj_scale_inv "
        "gate_up_proj_activation_scale weight_scale_inv_scale_inv kv_scale"
    ),
    "gguf": (
        "token_embd.weight rope_freqs.weight attn_q.weight attn_qkv.weight attn_k_b.weight "
        "attn_v_b.weight attn_q_norm.weight attn_q.scale ffn_gate.3.weight ffn_gate_exps.weight "
        "ffn_up_exps.weight ffn_gate_up_exps.weight ffn_gate_exps.bias ffn_up_exps.bias "
        "ssm_conv1d.weight"
    ),
    "gptq": "qweight qzeros scales g_idx B s workspace bias",
    "hqq": "W_q scale zero zero_scale shape nbits group_size axis",
    "mlx": "weight scales biases qbiases global_scale bias",
    "modelopt": (
        "weight weight_scale weight_scale_2 input_scale pre_quant_scale svdquant_lora_a "
        "svdquant_lora_b down_proj down_proj_weight_scale down_proj_weight_scale_2 "
        "weight_scale_weight_scale v_scale"
    ),
    "mxfp4": (
        "gate_up_proj_blocks gate_up_proj_scales down_proj_blocks _blocks down_proj_blocks_scales"
    ),
    "quanto": (
        "weight._data weight._data._data weight._data._scale weight._scale weight._shift "
        "input_scale output_scale"
    ),
    "torchao": (
        "_weight_qdata _weight_scale _weight_zero_point _weight_scale_and_zero "
        "_weight_per_tensor_scale _weight_act_pre_scale weight:qdata weight:scale weight:_data"
    ),
    "vptq": (
        "indices res_indices outlier_indices perm weight_scale centroids.weight "
        "res_centroids.weight outlier_centroids.weight"
    ),
}
LAYOUTS: dict[str, Layout] = {
    file: import_module(f"auditor.layouts.{file}").LAYOUT for file in METHODS.values()
}
ANYWHERE = ("weight", "bias", "gate_up_proj", "down_proj", "norm.weight")

SIZES = st.sampled_from(
    (0, 1, 2, 3, 4, 7, 8, 16, 32, 48, 64, 96, 128, 256, 2**20, 2**31, 2**40, 2**63, 2**64)
)
SMALL = st.sampled_from((1, 2, 4, 8, 16, 32, 64, 128))
SHAPES = st.lists(SMALL, min_size=2, max_size=2) | st.lists(SIZES, max_size=5)
DTYPES = st.sampled_from((*DTYPE_BITS, "Q4_K", "unheard-of"))

# --- settings ---------------------------------------------------------------------------------

# A layout's file -> the keys that it reads, at any depth.
KEYS = {
    "aqlm": "in_group_size out_group_size num_codebooks nbits_per_codebook",
    "auto_round": "bits group_size packing_format backend data_type extra_config dynamic "
    "block_name_to_quantize to_quant_block_names mlp.up_proj .*mlp.*",
    "awq": "bits w_bit group_size q_group_size version format zero_point modules_to_not_convert",
    "bitnet": "modules_to_not_convert linear_class quantization_mode use_rms_norm",
    "bitsandbytes": "load_in_4bit load_in_8bit llm_int8_skip_modules llm_int8_has_fp16_weight",
    "compressed_tensors": "config_groups group_0 weights input_activations targets ignore format "
    "num_bits type symmetric strategy group_size block_structure actorder dynamic "
    "kv_cache_scheme quantization_config",
    "eetq": "modules_to_not_convert",
    "fp8": "weight_block_size activation_scheme expert_dtype modules_to_not_convert ignored_layers",
    "gguf": "model_type",
    "gptq": "bits group_size desc_act checkpoint_format format is_marlin_format dynamic",
    "hqq": "quant_config weight_quant_params nbits group_size mlp.up_proj lm_head",
    "mlx": "bits group_size mode",
    "modelopt": "quant_algo group_size exclude_modules ignore quantized_layers activation_scheme "
    "config_groups group_0 weights",
    "mxfp4": "modules_to_not_convert",
    "quanto": "weights activations",
    "torchao": "quant_type",
    "vptq": "config_for_layers shared_layer_config vector_lens num_centroids num_res_centroids "
    "group_num group_size outlier_size up_proj",
}
WORDS = """
    128x128 4x AFFINE FP8 Linear MIXED_PRECISION NVFP4 W4A16_AWQ affine auto_round auto_round:awq
    autobitlinear bitlinear block channel deepseek_v3 dynamic fp4 gemm gemv gemv_fast gpt_oss gptq
    granitemoe group int int4 llama marlin mixtral mxfp4 nvfp4 offline pack-quantized phi re:.*mlp
    re:( static tensor tensor_group *.mlp* model.layers.0.mlp
""".split()  # noqa: SIM905 - a paragraph of words
NUMBERS = st.sampled_from((-1, 0, 1, 2, 3, 4, 5, 8, 16, 32, 64, 128, 2**24, 2**31, 2**70))
LEAVES = (
    st.none()
    | st.booleans()
    | NUMBERS
    | st.integers()
    | st.floats()
    | st.sampled_from((*WORDS, *MODULES))
    | st.text(max_size=4)
)


def values(keys):
    """JSON of any shape, whose objects have such keys as a rule."""
    names = st.sampled_from(keys) | st.sampled_from(MODULES) | st.text(max_size=3)
    return st.recursive(
        LEAVES,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(names, inner, max_size=6)
            | st.lists(NUMBERS, min_size=2, max_size=2)
        ),
        max_leaves=12,
    )


def objects(keys):
    return st.dictionaries(st.sampled_from(keys) | st.sampled_from(MODULES), values(keys))


SETTINGS = {file: objects(keys.split()) for file, keys in KEYS.items()}
ANY_KEYS = sorted({key for keys in KEYS.values() for key in keys.split()})
ANYTHING = values(ANY_KEYS)
ANY_SETTINGS = objects(ANY_KEYS)


@st.composite
def tensors(draw, marks):
    """A few tensors under the layout's names and under those that any model has."""
    lasts = st.sampled_from(marks) | st.sampled_from(ANYWHERE)
    modules = draw(st.lists(st.sampled_from(MODULES), min_size=1, max_size=2, unique=True))
    places = st.tuples(st.sampled_from(modules), lasts)
    found = draw(st.lists(places, max_size=8, unique=True))
    return tuple(_tensor(draw, f"{module}.{last}".lstrip(".")) for module, last in found)


def _tensor(draw, name):
    shape = draw(st.none() | SHAPES.map(tuple) | SHAPES.map(tuple))
    if shape is None:
        return StoredTensor(name, None, None, None, "model.safetensors", None)
    return StoredTensor(name, draw(DTYPES), shape, prod(shape), "model.safetensors", None)


def implied_shapes():
    """An architecture that has some of the names, and experts by number."""
    parts = (
        "weight",
        "bias",
        "down_proj",
        "q_proj.weight",
        "k_proj.weight",
        "v_proj.weight",
        *(f"{expert}.{part}.weight" for expert in (0, 1, 2) for part in ("up_proj", "gate_proj")),
        "0.down_proj.weight",
        "0.w1.weight",
    )
    names = [f"{module}.{part}".lstrip(".") for module in MODULES for part in parts]
    inner = st.lists(SMALL | SIZES, min_size=1, max_size=3).map(tuple)
    return st.dictionaries(st.sampled_from(names), inner, max_size=6)


def test_every_layout_is_tried_here():
    assert set(MARKS) == set(KEYS) == set(LAYOUTS)


def held(unpacked: Unpacked, stored: tuple[StoredTensor, ...]) -> None:
    pieces = {piece.stored for piece in unpacked.tensors}
    notes = Counter(tensor for one in unpacked.quantization_data for tensor in one.tensors)
    faults = {tensor for fault in unpacked.faults for tensor in fault.tensors}
    assert max(notes.values(), default=1) == 1, "quantization_data once"
    assert pieces.isdisjoint(notes), "a piece or quantization_data, and never both"
    assert pieces | set(notes) | faults <= set(stored)
    twice = Counter((piece.stored, piece.name) for piece in unpacked.tensors)
    assert max(twice.values(), default=1) == 1, "a piece of a stored tensor once"
    for piece in unpacked.tensors:
        assert piece.shape is None or all(type(side) is int and side >= 0 for side in piece.shape)
    reasons = [one.reason for one in (*unpacked.quantization_data, *unpacked.faults)]
    assert all(len(text.splitlines()) == 1 for text in (unpacked.layout, *reasons))
    assert all(text.isprintable() for text in (unpacked.layout, *reasons))


def told(unpacked: Unpacked) -> object:
    """All of it but the order."""
    books = {note.reason: frozenset(note.tensors) for note in unpacked.quantization_data}
    faults = {fault.reason: frozenset(fault.tensors) for fault in unpacked.faults}
    return unpacked.layout, frozenset(unpacked.tensors), books, faults


SOME = examples(50)  # of each of 17 layouts


@pytest.mark.parametrize("file", MARKS)
@SOME
@given(data=st.data())
def test_any_tensor_is_accounted_for_once_without_a_traceback(file, data):
    layout, stored = LAYOUTS[file], data.draw(tensors(MARKS[file].split()))
    settings, implied = data.draw(st.none() | SETTINGS[file]), data.draw(implied_shapes())
    method = data.draw(st.sampled_from(layout.methods))
    declared = (
        None
        if settings is None
        else Declared(method=method, settings=settings, where="quantization_config")
    )
    layout.recognises(Stored(stored))
    try:
        unpacked = layout.unpack(Stored(stored), declared, implied.get)
    except CheckpointError:
        return
    held(unpacked, stored)
    held(separated(unpacked, stored, implied.get), stored)
    again = layout.unpack(Stored(stored[::-1]), declared, implied.get)
    assert told(again) == told(unpacked), "the order of the tensors changes nothing"


@given(data=st.data())
def test_a_config_of_any_kind_beside_tensors_of_any_layout_is_never_a_traceback(data):
    marks = data.draw(st.lists(st.sampled_from(list(MARKS)), min_size=1, max_size=2))
    stored = data.draw(tensors([mark for file in marks for mark in MARKS[file].split()]))
    method = st.sampled_from(list(METHODS)) | ANYTHING
    settings = data.draw(st.tuples(ANY_SETTINGS, method).map(_with_method) | ANYTHING)
    key = data.draw(st.sampled_from(("quantization_config", "quantization", "text_config")))
    implied = data.draw(implied_shapes())
    try:
        declared = declaration({key: settings}, None)
        if declared is not None and declared.method not in METHODS:
            return
        unpacked = unpack_tensors(stored, declared, implied.get)
    except CheckpointError:
        return
    held(unpacked, stored)


def _with_method(pair):
    settings, method = pair
    return {**settings, "quant_method": method}


W = "model.layers.0.mlp.up_proj"


def test_what_is_packed_in_two_ways_is_in_the_books_once_and_a_fault(subtests):
    for file, lasts, reason in [
        ("fp8", ("weight", "weight_scale", "weight_scale_inv"), "the weight has another scale"),
        ("bitsandbytes", ("weight", "SCB", "weight.absmax"), "is stored without its quant_map"),
        ("bitsandbytes", ("weight", "weight.absmax", "weight.absmax.absmax"), "without its quant"),
        ("torchao", ("_weight_qdata", "weight:qdata"), "is stored without its scale"),
    ]:
        with subtests.test(file=file, lasts=lasts, reason=reason):
            names = [f"{W}.{last}" for last in lasts]
            stored = tuple(StoredTensor(name, None, None, None, "f", None) for name in names)
            unpacked = LAYOUTS[file].unpack(Stored(stored), None, lambda _name: None)
            held(unpacked, stored)
            assert any(reason in fault.reason for fault in unpacked.faults), unpacked.faults
