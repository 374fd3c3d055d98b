"""Totals of published indexes and files, from names, the config and the layout alone.

Each figure is what its publisher wrote, into an index or as the size of a file on the Hub.
"""

import json
import tempfile
from collections.abc import Callable, Iterable
from math import prod
from pathlib import Path

import pytest
from support import deepseek_v3
from support.layouts.examples import layout_of
from support.layouts.packed import opened, pieces, quantization_data, says
from support.layouts.tables import (
    Parts,
    below,
    compressed,
    four_bits,
    gemm,
    gptq,
    pack_quantized,
    scheme,
)
from support.sharding import INDEX, alarms, kinds, pointer, shard_names, without_absence

from auditor import Report
from auditor.analytic import Role, catalogue, read_config
from auditor.audit.pipeline import audit
from auditor.layouts import written_tensors
from auditor.layouts.declared import declaration
from auditor.reconciler.matching import shapes_of
from auditor.tensors import DTYPE_BITS, StoredTensor

LLAMA_8B = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "dtype": "float16",
}
LLAMA_70B = LLAMA_8B | {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
}
MISTRAL = LLAMA_8B | {"vocab_size": 32000}
# TheBloke/MythoMax-L2-13B-GPTQ
MYTHOMAX = MISTRAL | {
    "hidden_size": 5120,
    "intermediate_size": 13824,
    "num_hidden_layers": 40,
    "num_attention_heads": 40,
    "num_key_value_heads": 40,
    "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128},
}
# openai/gpt-oss-20b
GPT_OSS = LLAMA_8B | {
    "model_type": "gpt_oss",
    "architectures": ["GptOssForCausalLM"],
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "head_dim": 64,
    "num_local_experts": 32,
    "vocab_size": 201088,
    "dtype": "bfloat16",
    "quantization_config": {"quant_method": "mxfp4"},
}
# mlx-community's 4 bits of Qwen2.5-Coder-3B-Instruct
OF_MLX = {"group_size": 64, "bits": 4, "mode": "affine"}
CODER = LLAMA_8B | {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "dtype": "bfloat16",
    "tie_word_embeddings": True,
    "quantization": OF_MLX,
}
FULL = (2, 6, 10, 14, 18, 21)  # layers of attention
# mlx-community's 4 bits of LFM2-8B-A1B, whose routers have 8
GATES = [f"model.layers.{n}.feed_forward.gate" for n in range(2, 24)]
LFM2 = CODER | {
    "model_type": "lfm2_moe",
    "architectures": ["Lfm2MoeForCausalLM"],
    "intermediate_size": 7168,
    "moe_intermediate_size": 1792,
    "num_dense_layers": 2,
    "num_experts": 32,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "layer_types": ["full_attention" if n in FULL else "conv" for n in range(24)],
    "vocab_size": 128000,
    "use_expert_bias": True,
    "quantization": OF_MLX | {gate: {"group_size": 64, "bits": 8} for gate in GATES},
}


def plain_names(config: dict[str, object], *roles: Role) -> list[str]:
    read = read_config("config.json", json.dumps(config).encode())
    expectation = catalogue.expect(read, read.architectures[0])
    return [tensor.name for tensor in expectation.tensors if tensor.role in roles]


def in_blocks(names: Iterable[str]) -> list[str]:
    """As gpt-oss names its experts."""
    ends = ("experts.gate_up_proj", "experts.down_proj")
    pairs = (
        (f"{name}_blocks", f"{name}_scales") if name.endswith(ends) else (name,) for name in names
    )
    return [name for pair in pairs for name in pair]


def by_mlx(names: Iterable[str]) -> list[str]:
    """As mlx_lm names what it packs: all matrices but those of convolutions."""
    older = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    found: dict[str, None] = {}
    for name in names:
        module, _, last = name.rpartition(".")
        before, experts, after = module.partition(".experts.")
        if experts:
            module = f"{before}.switch_mlp.{older[after.partition('.')[2]]}"
        elif "feed_forward.w" in module:
            module = module[:-2] + older[module[-2:]]
        is_plain = last != "weight" or "norm" in module or module.endswith(".conv")
        lasts = (last,) if is_plain else ("weight", "scales", "biases")
        found |= dict.fromkeys(f"{module}.{one}" for one in lasts)
    return list(found)


def folder_of(path: Path, config: dict[str, object], names: Iterable[str], **metadata: int) -> str:
    weight_map = dict.fromkeys(names, "model.safetensors")
    (path / "config.json").write_text(json.dumps(config))
    (path / INDEX).write_text(json.dumps({"metadata": metadata, "weight_map": weight_map}))
    return str(path)


@pytest.mark.slow
def test_the_total_of_a_published_index_is_that_of_its_layout(subtests, tmp_path):
    for config, names, count, totals in [
        (GPT_OSS, in_blocks, 459, (13_761_264_768, 20_914_757_184)),
        (CODER, by_mlx, 940, (1_736_187_904, 3_085_938_688)),
        (LFM2, by_mlx, 566, (4_764_197_120, 8_467_856_128)),
    ]:
        with subtests.test(config=config, names=names, count=count, totals=totals):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            total, parameters = totals
            stored = names(plain_names(config, Role.PARAMETER, Role.BUFFER))
            assert len(stored) == count
            report = audit(
                folder_of(place, config, stored, total_size=total, total_parameters=parameters)
            )
            assert isinstance(report, Report)
            assert others(report) == []
            assert any(note.startswith(f"total_size {total:,} = ") for note in report.notes)
            assert report.expected.parameters == parameters
            for wrong in (2 * total, total - 2, 0):
                report = audit(folder_of(place, config, stored, total_size=wrong))
                assert others(report) == ["bad-index"], wrong
            report = audit(folder_of(place, config, stored, total_parameters=parameters // 8))
            assert others(report) == ["wrong-total"]


@pytest.mark.slow
def test_the_total_of_deepseek_r1_has_a_bias_for_its_router_in_32_bits(tmp_path):
    """The biases of 59 routers are kept in F32, as transformers keeps them."""
    report, total = of_deepseek(tmp_path, 16)
    assert others(report) == []
    [told] = [note for note in report.notes if note.startswith(f"total_size {total:,} = ")]
    assert "3,776 of e_score_correction_bias (944 x 4)" in told


@pytest.mark.slow
def test_another_total_of_deepseek_is_wrong(subtests, tmp_path):
    for wrong in [lambda total: total + 2, lambda total: 2 * total]:
        with subtests.test(wrong=wrong):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            report, stated = of_deepseek(place, 4, wrong)
            assert others(report) == ["bad-index"]
            assert [
                note for note in report.notes if note.startswith(f"total_size {stated:,} = ")
            ] == []


def others(report: Report) -> list[str]:
    """The kinds of the alarms beside that of absent files."""
    return [one.kind for one in without_absence(report)]


def of_deepseek(
    path: Path, experts: int, stated: Callable[[int], int] = lambda total: total
) -> tuple[Report, int]:
    """The audit of its names with so many experts beside a total, and that total."""
    table = dict(deepseek_v3.tensors(experts))
    total = stated(sum(prod(shape) * DTYPE_BITS[dtype] // 8 for dtype, shape in table.values()))
    routing = {"num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
    config = {**deepseek_v3.CONFIG, "n_routed_experts": experts, **routing}
    report = audit(folder_of(path, config, table, total_size=total))
    assert isinstance(report, Report)
    return report, total


def test_a_file_of_13_billion_parameters_in_gptq_is_its_tensors_and_a_header():
    """7,259,435,192 bytes, with the biases of zeros that AutoGPTQ wrote: 112 a tensor around it."""
    read = read_config("config.json", json.dumps(MYTHOMAX).encode())
    shapes = shapes_of(catalogue.expect(read, "LlamaForCausalLM"))
    packed, plain = [], 0
    for name in plain_names(MYTHOMAX, Role.PARAMETER):
        if "proj" in name:
            lasts = ("qweight", "qzeros", "scales", "g_idx", "bias")
            packed += [f"{name.removesuffix('weight')}{last}" for last in lasts]
        else:
            plain += 1
    tensors = tuple(StoredTensor(name, None, None, None, "", None) for name in packed)
    told = written_tensors(tensors, declaration(read.values, None), shapes)
    assert set(told) == set(packed)
    sizes = (prod(one.shape) * DTYPE_BITS[one.dtypes[0]] // 8 for one in told.values())
    inside = sum(sizes)
    inside += 2 * (2 * 32000 * 5120 + 81 * 5120)
    around = 7_259_435_192 - inside
    assert 100 * (len(packed) + plain) < around < 140 * (len(packed) + plain)


ORDERED = {"num_bits": 4, "group_size": 128, "actorder": "group"}


def with_biases(out: int, inputs: int) -> Parts:
    """As AutoGPTQ wrote every packed linear: with a bias of zeros."""
    return gptq(out, inputs) | {"bias": ("F16", (out,))}


def test_packed_and_plain_parameters_are_those_of_a_card(subtests):
    for file, pack, declared, config, published in [
        # Llama-3.1-8B W4A16: its 8,030,261,248 parameters and 1,376,256 biases
        (
            "gptq",
            with_biases,
            says("gptq", bits=4, group_size=128),
            LLAMA_8B,
            (6_979_321_856, 1_052_315_648),
        ),
        # TheBloke/Mistral-7B-v0.1-AWQ: 7,241,732,096
        ("awq", gemm, says("awq", bits=4, group_size=128), MISTRAL, (6_979_321_856, 262_410_240)),
        # Meta-Llama-3.1-8B-Instruct bnb 4-bit: U8 6,979,321,856 + BF16 1,050,939,392
        (
            "bitsandbytes",
            lambda *shape: four_bits(shape, nested=True),
            says("bitsandbytes", load_in_4bit=True),
            LLAMA_8B,
            (6_979_321_856, 1_050_939_392),
        ),
        # Llama-3.3-70B W4A16, by activation order: I32 unpacked and BF16 of its card
        (
            "compressed_tensors",
            lambda *shape: pack_quantized(*shape, 4, 128, index=True),
            compressed(scheme(**ORDERED), ignore=["lm_head"], format="pack-quantized"),
            LLAMA_70B,
            (68_451_041_280, 2_102_665_216),
        ),
    ]:
        with subtests.test(
            file=file, pack=pack, declared=declared, config=config, published=published
        ):
            read = read_config("config.json", json.dumps(config).encode())
            expectation = catalogue.expect(read, "LlamaForCausalLM")
            shapes = {
                one.name: one.shape for one in expectation.tensors if one.role is Role.PARAMETER
            }
            table: Parts = {}
            for name, shape in shapes.items():
                is_packed, module = "_proj" in name, name.removesuffix(".weight")
                table |= below(module, pack(*shape)) if is_packed else {name: ("BF16", shape)}
            unpacked = opened(layout_of(file), table, declared, shapes, large=True)
            inside = {piece.stored.name for piece in unpacked.tensors} | quantization_data(unpacked)
            plain = sum(prod(shape) for name, (_, shape) in table.items() if name not in inside)
            assert unpacked.faults == ()
            assert (sum(prod(piece.shape) for piece in unpacked.tensors), plain) == published


@pytest.mark.slow
def test_deepseek_r1_has_91_991_tensors_and_all_of_the_model():
    """688,586,727,753 bytes in its 163 files, as the Hub lists them."""
    table = dict(deepseek_v3.tensors())
    read = read_config("config.json", json.dumps(deepseek_v3.CONFIG).encode())
    expectation = catalogue.expect(read, "DeepseekV3ForCausalLM")
    size = sum(prod(shape) * DTYPE_BITS[dtype] // 8 for dtype, shape in table.values())
    # A header takes 110 to 140 bytes a tensor in healthy files.
    assert len(table) == deepseek_v3.TENSORS
    assert 110 < (688_586_727_753 - size) / len(table) < 140
    declared = says("fp8", weight_block_size=[128, 128], activation_scheme="dynamic")
    unpacked = opened(layout_of("fp8"), table, declared, large=True)
    found = pieces(unpacked)
    left = set(table) - quantization_data(unpacked) - set(found)
    assert found | {name: table[name][1] for name in left} == {
        tensor.name: tensor.shape for tensor in expectation.tensors
    }
    assert unpacked.faults == ()


def test_a_clone_of_gpt_oss_without_lfs_lacks_nothing_and_shows_nothing(tmp_path):
    """Three pointers hide 20,914,757,184 parameters, each behind the file that holds it."""
    names = in_blocks(plain_names(GPT_OSS, Role.PARAMETER))
    shards = shard_names(3)
    weight_map = {name: shards[at % 3] for at, name in enumerate(names)}
    (tmp_path / "config.json").write_text(json.dumps(GPT_OSS))
    (tmp_path / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    for shard in shards:
        (tmp_path / shard).write_bytes(b"")
        pointer(tmp_path / shard)
    report = audit(str(tmp_path))
    assert isinstance(report, Report)
    assert kinds(report) == ["bad-header"] * 3
    assert sum(finding.parameters for finding in alarms(report)) == 20_914_757_184
    for finding in alarms(report):
        held = {name.removesuffix("_blocks") for name in names if weight_map[name] == finding.file}
        assert {tensor.name for tensor in finding.hidden} == {
            name for name in held if not name.endswith("_scales")
        }
    assert (report.residual, report.observed.parameters) == (0, 0)


@pytest.mark.slow
def test_unknown_facts_are_reported_as_unchecked(tmp_path):
    """HQQ keeps settings of a module in tensors of any dtype."""
    said = {"quant_method": "hqq", "quant_config": {"weight_quant_params": {"nbits": 4}}}
    names = plain_names(MYTHOMAX, Role.PARAMETER)
    lasts = ("W_q", "scale", "zero", "nbits", "group_size", "axis", "shape", "packing")
    stored = [
        one
        for name in names
        for one in (
            [f"{name.removesuffix('weight')}{last}" for last in lasts] if "proj" in name else [name]
        )
    ]
    config = MYTHOMAX | {"quantization_config": said}
    report = audit(folder_of(tmp_path, config, stored, total_size=7_000_000_000))
    assert others(report) == []
    (line,) = (line for line in report.unchecked if "total size" in line)
    assert line.startswith(
        "the total size to the byte: only their headers say what 2,240 of the packed"
    )
    report = audit(folder_of(tmp_path, config, stored, total_size=600_000_000))
    assert others(report) == ["bad-index"]
    assert "in F16: -" in without_absence(report)[0].reason
