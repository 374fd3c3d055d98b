"""bitsandbytes: 4-bit weights in one column, int8 weights with an SCB."""

from itertools import product
from math import ceil, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import one_in
from support.layouts.indexed import hides_what_it_cannot_show, its_total_is_told
from support.layouts.packed import (
    LINEARS_OF_8B,
    SMALL,
    faults,
    on_disk,
    opened,
    pieces,
    quantization_data,
    says,
    shapes,
    spoiled,
    stored,
    tells_what_is_written,
)

from auditor.audit.pipeline import audit
from auditor.layouts.bitsandbytes import LAYOUT
from auditor.layouts.packing import Stored, Unpacked

W = "model.layers.0.mlp.up_proj.weight"
WIDTHS = {"U8": 1, "BF16": 2, "F32": 4}  # bytes of a storage dtype
sizes = st.integers(1, 40).map(lambda n: 8 * n)


def four(shape, *, block=64, storage="U8", nested=False, kind="nf4", name=W):  # noqa: PLR0913 - a row
    """As QuantState.as_dict(packed=True) has it."""
    numbers = prod(shape)
    blocks = ceil(numbers / block)
    table = {
        name: (storage, (numbers // 2 // WIDTHS[storage], 1)),
        f"{name}.absmax": ("U8" if nested else "F32", (blocks,)),
        f"{name}.quant_map": ("F32", (16,)),
        f"{name}.quant_state.bitsandbytes__{kind}": ("U8", (87,)),
    }
    if nested:
        table[f"{name}.nested_absmax"] = ("F32", (ceil(blocks / 256),))
        table[f"{name}.nested_quant_map"] = ("F32", (256,))
    return table


def eight(shape, module="model.layers.0.mlp.up_proj"):
    return {
        f"{module}.weight": ("I8", shape),
        f"{module}.SCB": ("F32", shape[:1]),
        f"{module}.weight_format": ("U8", ()),
    }


# --- laws -------------------------------------------------------------------------------------


@given(
    sizes,
    sizes,
    st.sampled_from((32, 64, 128, 4096)),
    st.sampled_from(tuple(WIDTHS)),
    st.booleans(),
    st.sampled_from(("nf4", "fp4")),
)
def test_four_bits_of_any_shape_are_the_weight_of_the_architecture(  # noqa: PLR0913, PLR0917 - drawn
    outputs, inputs, block, storage, nested, kind
):
    table = four((outputs, inputs), block=block, storage=storage, nested=nested, kind=kind)
    unpacked = opened(LAYOUT, table, says("bitsandbytes"), {W: (outputs, inputs)})
    assert pieces(unpacked) == {W: (outputs, inputs)}
    assert quantization_data(unpacked) == set(table) - {W}
    assert unpacked.faults == ()
    assert [piece.dtype for piece in unpacked.tensors] == [kind.upper()]


@given(sizes, sizes)
def test_int8_determines_its_shape(outputs, inputs):
    table = eight((outputs, inputs))
    unpacked = opened(LAYOUT, table, says("bitsandbytes"), {W: (7, 7)})
    assert pieces(unpacked) == {W: (outputs, inputs)}
    assert quantization_data(unpacked) == set(table) - {W}
    assert unpacked.faults == ()


@pytest.mark.parametrize("table", [four((64, 96)), four((64, 96), nested=True), eight((64, 96))])
def test_a_tensor_of_another_shape_is_a_fault_or_another_shape(table):
    assert opened(LAYOUT, table, implied={W: (64, 96)}).faults == ()
    for name, other in spoiled(table):
        unpacked = opened(LAYOUT, other, implied={W: (64, 96)})
        json_of_another_length = "quant_state" in name and len(other[name][1]) == 1
        right = pieces(unpacked) == {W: (64, 96)} and unpacked.faults == ()
        assert right == json_of_another_length, (name, other[name])


# --- the library ------------------------------------------------------------------------------


def _quantised(folder, cls, config, **settings):
    torch = pytest.importorskip("torch")
    pytest.importorskip("bitsandbytes")
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    model = getattr(transformers, cls)(config).to(torch.float16)
    model.save_pretrained(folder / "plain")
    packing = transformers.BitsAndBytesConfig(**settings)
    packed = getattr(transformers, cls).from_pretrained(
        folder / "plain", quantization_config=packing, device_map="cpu"
    )
    packed.save_pretrained(folder / "packed")
    return on_disk(folder / "plain"), on_disk(folder / "packed")


def _llama():
    return pytest.importorskip("transformers").LlamaConfig(**SMALL)


def _gpt2():
    transformers = pytest.importorskip("transformers")
    return transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=50, n_positions=16)


WAYS = {
    "int8": {"load_in_8bit": True},
    "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    "fp4": {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"},
    "nested": {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
    },
    "bf16": {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_quant_storage": "bfloat16",
    },
}


MODELS = {"LlamaForCausalLM": _llama, "GPT2LMHeadModel": _gpt2}


@pytest.mark.oracle
@pytest.mark.parametrize(("model", "way"), one_in(2, product(MODELS, WAYS)))
def test_what_the_library_packs_is_the_unpacked_checkpoint(tmp_path, model, way):
    way = WAYS[way]
    plain, packed = _quantised(tmp_path, model, MODELS[model](), **way)
    unpacked = opened(LAYOUT, packed, says("bitsandbytes", **way), shapes(plain))
    assert unpacked.faults == ()
    aside = quantization_data(unpacked)
    found = {name: shape for name, (_, shape) in packed.items() if name not in aside}
    assert {**found, **pieces(unpacked)} == shapes(plain)
    assert pieces(unpacked)
    report = audit(str(tmp_path / "packed"))
    assert (report.residual, report.verdict) == (0, "clean")
    hides_what_it_cannot_show(tmp_path / "packed")
    its_total_is_told(tmp_path / "packed", exact="load_in_8bit" in way)
    tells_what_is_written(LAYOUT, packed, says("bitsandbytes", **way), shapes(plain))


# --- what checkpoints get wrong ---------------------------------------------------------------

FOUR = four((64, 96))
WITHOUT = {name: described for name, described in FOUR.items() if name != W}


def only(unpacked: Unpacked) -> str:
    (fault,) = unpacked.faults
    return fault.reason


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (FOUR | {W: ("U8", (3000, 1))}, "absmax is (96,), expected (94,)"),
        (FOUR | {W: ("U8", (64, 48))}, "weight is U8 (64, 48), expected one column"),
        (FOUR | {W: ("F16", (64, 96))}, "weight is F16 (64, 96), expected one column"),
        (FOUR | {f"{W}.absmax": ("F32", (95,))}, "absmax is (95,), expected (96,)"),
        (FOUR | {f"{W}.quant_map": ("F32", (256,))}, "quant_map is (256,), expected (16,)"),
        (
            FOUR | {f"{W}.absmax": ("U8", (96,))},
            "is stored without its nested_absmax and nested_quant_map",
        ),
        (WITHOUT, "is stored without its weight"),
        ({W: FOUR[W], f"{W}.quant_map": ("F32", (16,))}, "without its absmax and quant_state"),
        (
            eight((64, 96)) | {W.replace("weight", "SCB"): ("F32", (96,))},
            "SCB is (96,), expected (64,)",
        ),
        (eight((64, 96)) | {W: ("F16", (64, 96))}, "weight is F16 (64, 96), expected I8 (out, in)"),
        (
            eight((64, 96)) | {W: ("I8", (64, 96, 1))},
            "weight is I8 (64, 96, 1), expected I8 (out, in)",
        ),
        ({"a.SCB": ("F32", (4,))}, "is stored without its weight"),
        ({W: ("I8", (64, 96))}, "is stored without its SCB"),
        ({W: ("U8", (3072, 1))}, "is stored without its absmax and quant_map and quant_state"),
    ],
)
def test_what_cannot_be_is_a_fault(table, reason):
    unpacked = opened(LAYOUT, table, says("bitsandbytes"), {W: (64, 96)})
    assert any(reason in found for found in faults(unpacked)), faults(unpacked)


@pytest.mark.parametrize(
    ("table", "settings", "reason"),
    [
        (FOUR, {"load_in_8bit": True}, "load_in_8bit of quantization_config is true"),
        (eight((64, 96)), {"load_in_4bit": True}, "load_in_4bit of quantization_config is true"),
        (
            FOUR,
            {"llm_int8_skip_modules": ["model.layers.0.mlp"]},
            "is packed, but plain by llm_int8_skip",
        ),
    ],
)
def test_settings_that_contradict_the_tensors_are_a_fault(table, settings, reason):
    unpacked = opened(LAYOUT, table, says("bitsandbytes", **settings), {W: (64, 96)})
    assert reason in only(unpacked)


@pytest.mark.parametrize(
    "settings",
    [
        {"load_in_4bit": True, "llm_int8_skip_modules": ["lm_head", "layers.0.mlp"]},
        {"load_in_4bit": "yes", "llm_int8_skip_modules": {"model": 1}},
        {"load_in_4bit": [], "llm_int8_skip_modules": [None, 3, ["model"]]},
    ],
)
def test_empty_settings_are_not_a_fault(settings):
    assert opened(LAYOUT, FOUR, says("bitsandbytes", **settings), {W: (64, 96)}).faults == ()


PLAIN = {"model.layers.1.mlp.up_proj.weight": ("F16", (64, 96))}


@pytest.mark.parametrize(
    ("skipped", "odd"),
    [
        (None, True),
        (["lm_head"], True),
        (["model.layers.2.mlp"], True),
        (["model.layers.1.mlp.up_proj"], False),
        (["language_model.model.layers.1"], False),
        ([r"layers\.1\..*"], False),
        (["lm_head"] * 90_000, True),
        ([f"a{n}" for n in range(100_000)], False),  # too many to compare
    ],
)
def test_a_weight_that_is_plain_in_one_layer_has_to_be_skipped(skipped, odd):
    table = FOUR | PLAIN
    declared = says("bitsandbytes", load_in_4bit=True, llm_int8_skip_modules=skipped)
    unpacked = opened(LAYOUT, table, declared, {W: (64, 96)})
    assert list(faults(unpacked).values()) == ([set(PLAIN)] if odd else [])
    assert all("plain, but not by llm_int8_skip" in reason for reason in faults(unpacked))


@pytest.mark.parametrize("table", [four((64, 96), nested=True), eight((64, 96))])
def test_a_shape_that_only_an_unread_shard_has_is_not_a_fault(table):
    for hidden in table:
        unpacked = opened(LAYOUT, table | {hidden: None}, says("bitsandbytes"), {W: (64, 96)})
        assert pieces(unpacked) == {W: None if hidden == W else (64, 96)}
        assert unpacked.faults == ()


@pytest.mark.parametrize(
    ("table", "known"),
    [
        (FOUR, True),
        (eight((8, 8)), True),
        ({"a.weight": ("I8", (8, 8)), "a.scales": ("F16", (8,))}, False),
        ({"absmax": ("F32", (8,))}, False),
    ],
)
def test_it_recognises_its_own_marks(table, known):
    assert LAYOUT.recognises(Stored(stored(table))) is known


def test_llama_3_1_8b_in_nf4_has_the_count_of_its_card():
    """Meta-Llama-3.1-8B-Instruct bnb 4-bit on the Hub: U8 6,979,321,856 + BF16 1,050,939,392."""
    implied = {
        f"model.layers.{n}.{name}.weight": shape
        for n in range(32)
        for name, shape in LINEARS_OF_8B.items()
    }
    table = {}
    for name, shape in implied.items():
        table |= four(shape, nested=True, name=name)
    unpacked = opened(LAYOUT, table, says("bitsandbytes", load_in_4bit=True), implied)
    assert unpacked.faults == ()
    assert sum(prod(piece.shape) for piece in unpacked.tensors) == 6_979_321_856
