"""Packed weights, unpacked: the numbers are those of each format's own library.

One side is packed, the other has the numbers that the library unpacks, or, for formats whose
library needs a GPU, those that went into the words. Both are the same model to `diff --values`.
"""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from support.layouts.words import gemm_words, packed_words
from support.value_files import write_model

import auditor
from auditor.values.number_formats import BLOCK_TYPES, BLOCKS, SIZES

OUT, IN, GROUP = 64, 128, 32
NAMES = [f"model.layers.0.self_attn.{part}_proj" for part in "qkvo"]
CLOSE = 2e-4  # float16 scales, float32 sums
RNG = np.random.default_rng(0)


def matrices():
    return {name: RNG.standard_normal((OUT, IN), np.float32) for name in NAMES}


def distances(tmp_path, packed, plain, settings):
    """The distance of each matrix between the packed side and its numbers."""
    config = settings if "quantization" in settings else {"quantization_config": settings}
    first = write_model(tmp_path / "packed", packed, config=config)
    second = write_model(tmp_path / "plain", {f"{k}.weight": v for k, v in plain.items()})
    found = auditor.diff(first, second, values=True)
    assert found.not_compared == ()
    assert {one.name for one in found.numbers} == {f"{name}.weight" for name in plain}
    return [one.relative for one in found.numbers]


def codes(bits):
    """Integers, zero points and scales (groups, out), and the weights (out, in) they stand for."""
    whole = RNG.integers(0, 1 << bits, (IN, OUT))
    zeros = RNG.integers(1, 1 << bits, (IN // GROUP, OUT))
    scales = RNG.uniform(0.01, 0.02, (IN // GROUP, OUT)).astype(np.float16)
    return whole, zeros, scales


def weights(whole, zeros, scales, groups):
    return np.ascontiguousarray(((whole - zeros[groups]) * scales[groups].astype(np.float32)).T)


def test_gptq(subtests, tmp_path):
    for bits, form, act_order in [(2, "gptq", False), (4, "gptq", True), (8, "gptq_v2", False)]:
        with subtests.test(bits=bits, form=form, act_order=act_order):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            packed, plain = {}, {}
            groups = np.arange(IN) // GROUP
            groups = RNG.permutation(groups) if act_order else groups
            for name in NAMES:
                whole, zeros, scales = codes(bits)
                stored = (zeros - (form == "gptq")).T.copy()
                packed |= {
                    f"{name}.qweight": packed_words(np, whole, bits),
                    f"{name}.qzeros": np.ascontiguousarray(packed_words(np, stored, bits).T),
                    f"{name}.scales": scales,
                    f"{name}.g_idx": groups.astype(np.int32),
                }
                plain[name] = weights(whole, zeros, scales, groups)
            settings = {
                "quant_method": "gptq",
                "bits": bits,
                "group_size": GROUP,
                "desc_act": act_order,
                "checkpoint_format": form,
            }
            assert max(distances(place, packed, plain, settings)) < CLOSE


def test_awq(tmp_path):
    packed, plain = {}, {}
    for name in NAMES:
        whole, zeros, scales = codes(4)
        packed |= {
            f"{name}.qweight": gemm_words(np, whole),
            f"{name}.qzeros": gemm_words(np, zeros),
            f"{name}.scales": scales,
        }
        plain[name] = weights(whole, zeros, scales, np.arange(IN) // GROUP)
    settings = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}
    assert max(distances(tmp_path, packed, plain, settings)) < CLOSE


def test_mlx(subtests, tmp_path):
    for bits in [2, 8]:
        with subtests.test(bits=bits):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            mx = pytest.importorskip("mlx.core")
            packed, plain = {}, {}
            for name, matrix in matrices().items():
                parts = mx.quantize(mx.array(matrix), GROUP, bits, stream=mx.cpu)
                last = ("weight", "scales", "biases")
                packed |= {
                    f"{name}.{one}": np.array(part) for one, part in zip(last, parts, strict=True)
                }
                plain[name] = np.array(mx.dequantize(*parts, GROUP, bits, stream=mx.cpu))
            config = {"quantization": {"bits": bits, "group_size": GROUP}}
            assert max(distances(place, packed, plain, config)) < CLOSE


def test_fp8(tmp_path):
    torch = pytest.importorskip("torch")
    packed, plain = {}, {}
    for name, matrix in matrices().items():
        scales = RNG.uniform(0.5, 2, (OUT // 32, IN // 32)).astype(np.float32)
        weight = torch.from_numpy(matrix).to(torch.float8_e4m3fn)
        content = weight.view(torch.uint8).numpy().tobytes()
        packed[f"{name}.weight"] = ("F8_E4M3", (OUT, IN), content)
        packed[f"{name}.weight_scale_inv"] = scales
        plain[name] = weight.float().numpy() * np.kron(scales, np.ones((32, 32), np.float32))
    settings = {"quant_method": "fp8", "weight_block_size": [32, 32]}
    assert max(distances(tmp_path, packed, plain, settings)) < CLOSE


def test_bitsandbytes_in_four_bits(subtests, tmp_path):
    for kind in ["nf4", "fp4"]:
        with subtests.test(kind=kind):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            torch = pytest.importorskip("torch")
            functional = pytest.importorskip("bitsandbytes.functional")
            packed, plain = {}, {}
            for name, matrix in matrices().items():
                quantized, state = functional.quantize_4bit(
                    torch.from_numpy(matrix), quant_type=kind
                )
                own = {key: value.numpy() for key, value in state.as_dict(packed=True).items()}
                packed[f"{name}.weight"] = quantized.numpy()
                packed |= {f"{name}.weight.{key}": value for key, value in own.items()}
                plain[name] = functional.dequantize_4bit(quantized, state).numpy()
            settings = {
                "quant_method": "bitsandbytes",
                "load_in_4bit": True,
                "bnb_4bit_quant_type": kind,
            }
            assert max(distances(place, packed, plain, settings)) < CLOSE


def test_bitsandbytes_in_eight_bits(tmp_path):
    packed, plain = {}, {}
    for name, matrix in matrices().items():
        largest = np.abs(matrix).max(axis=1)
        whole = np.round(matrix / largest[:, None] * 127).astype(np.int8)
        packed |= {
            f"{name}.weight": whole,
            f"{name}.SCB": largest,
            f"{name}.weight_format": np.zeros((), np.uint8),
        }
        plain[name] = whole * largest[:, None] / np.float32(127)
    settings = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    assert max(distances(tmp_path, packed, plain, settings)) < CLOSE


def test_gguf_with_the_rows_of_queries_and_keys_in_the_order_of_llama_cpp(subtests, tmp_path):
    for kind in ["BF16", "Q8_0", "Q4_1"]:
        with subtests.test(kind=kind):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            gguf = pytest.importorskip("gguf")
            heads, as_type = {"q": 4, "k": 2}, getattr(gguf.GGMLQuantizationType, kind)
            (place / "packed").mkdir()
            writer = gguf.GGUFWriter(place / "packed" / "model.gguf", "llama")
            writer.add_block_count(1)
            writer.add_embedding_length(IN)
            writer.add_head_count(heads["q"])
            writer.add_head_count_kv(heads["k"])
            plain = {}
            for part, own in (("q", "attn_q"), ("k", "attn_k"), ("v", "attn_v")):
                matrix = RNG.standard_normal((OUT, IN), np.float32)
                packed = gguf.quants.quantize(matrix, as_type)
                writer.add_tensor(f"blk.0.{own}.weight", packed, raw_dtype=as_type)
                numbers = gguf.quants.dequantize(packed, as_type)
                if part in heads:  # as LlamaModel.permute of convert_hf_to_gguf.py, undone
                    halves = numbers.reshape(heads[part], OUT // heads[part] // 2, 2, IN)
                    numbers = halves.swapaxes(1, 2).reshape(OUT, IN)
                plain[f"model.layers.0.self_attn.{part}_proj.weight"] = np.ascontiguousarray(
                    numbers
                )
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            second = write_model(place / "plain", plain)
            found = auditor.diff(str(place / "packed"), second, values=True)
            assert {one.name: one.relative < CLOSE for one in found.numbers} == dict.fromkeys(
                plain, True
            )


def test_blocks_of_gguf_are_decoded_as_the_gguf_package_decodes_them():
    gguf = pytest.importorskip("gguf")
    for kind, decode in BLOCK_TYPES.items():
        data = RNG.integers(0, 256, (64, SIZES[kind].size), np.uint8)
        for at in BLOCKS[kind].at:  # scales that are finite
            scales = RNG.uniform(-2, 2, 64).astype(np.float16)
            data[:, at : at + 2] = scales[:, None].view(np.uint8)
        expected = gguf.quants.dequantize(data, getattr(gguf.GGMLQuantizationType, kind))
        assert decode(data) == pytest.approx(expected, rel=1e-5, abs=1e-5), kind


def numbers_beside_ones(tmp_path, packed, settings):
    first = write_model(tmp_path / "packed", packed, config={"quantization_config": settings})
    ones = {f"{NAMES[0]}.weight": np.ones((OUT, IN), np.float32)}
    return auditor.diff(first, write_model(tmp_path / "plain", ones), values=True)


def test_a_packing_that_is_not_unpacked_is_reported(tmp_path):
    name = NAMES[0]
    packed = {
        f"{name}.weight_packed": np.zeros((OUT, IN // 8), np.int32),
        f"{name}.weight_scale": np.ones((OUT, IN // GROUP), np.float32),
        f"{name}.weight_shape": np.array([OUT, IN], np.int64),
    }
    scheme = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group"}
    group = {"targets": ["Linear"], "weights": scheme | {"group_size": GROUP}}
    settings = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    found = numbers_beside_ones(tmp_path, packed, settings | {"config_groups": {"group_0": group}})
    assert found.numbers == ()
    assert [f"{name}.weight" in line for line in found.not_compared] == [True]


def test_contradicting_sizes_are_not_compared(subtests, tmp_path):
    for part in ["qzeros", "scales", "g_idx"]:
        with subtests.test(part=part):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            name, (whole, zeros, scales) = NAMES[0], codes(4)
            parts = {
                "qweight": packed_words(np, whole, 4),
                "qzeros": np.ascontiguousarray(packed_words(np, zeros.T.copy(), 4).T),
                "scales": scales,
                "g_idx": np.full(IN, 10**6, np.int32),
            }
            parts[part] = parts[part][:1] if part != "g_idx" else parts[part]
            packed = {f"{name}.{last}": content for last, content in parts.items()}
            settings = {"quant_method": "gptq", "bits": 4, "group_size": GROUP}
            assert numbers_beside_ones(place, packed, settings).numbers == ()
