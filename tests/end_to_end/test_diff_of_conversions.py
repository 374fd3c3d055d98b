"""`audit diff` of a checkpoint that transformers wrote, and of what people make of it."""

import json
import shutil
import warnings
from copy import deepcopy

import pytest
from support.layouts.gptq_words import packed_words
from support.running import run

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
torch = pytest.importorskip("torch")

GROUP = 32
BITS_4 = 0.15  # more than the rounding of a normal number to four bits, in its standard deviations


@pytest.fixture(scope="module", name="models")
def folders_of_the_models(tmp_path_factory):
    return written(tmp_path_factory.mktemp("models"))


def written(top):
    """The base, and every version of it, in a folder each."""
    import transformers  # noqa: PLC0415 - slow
    from safetensors.torch import load_file, save_file  # noqa: PLC0415 - needs torch

    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96}
    config = transformers.LlamaConfig(**sizes, **heads, max_position_embeddings=64)
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(top / "base")
    deepcopy(model).to(torch.bfloat16).save_pretrained(top / "bf16")
    merged(model).save_pretrained(top / "merged")

    def changed(name, tensors, **keys):
        """The base with other tensors and config keys."""
        folder = shutil.copytree(top / "base", top / name)
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        values = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(values | keys))

    base = load_file(top / "base/model.safetensors")
    settings = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False}
    packed = linears_packed(base)
    changed("gptq", packed, quantization_config=settings)
    del packed["lm_head.weight"]
    changed("gptq-headless", packed, quantization_config=settings)

    (top / "gguf").mkdir()
    gguf_file(top / "gguf/model.gguf", base, config)

    return top


def merged(model):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    with warnings.catch_warnings():  # peft asks transformers for what is deprecated there
        warnings.simplefilter("ignore")
        return peft.get_peft_model(deepcopy(model), config).merge_and_unload()


def linears_packed(tensors):
    packed = {}
    for name, one in tensors.items():
        if "proj" in name:
            module = name.removesuffix(".weight")
            packed |= {f"{module}.{last}": part for last, part in gptq(one).items()}
        else:
            packed[name] = one
    return packed


def codes(weight):
    """The least number, the step and the integers of each group of inputs: (out, groups)."""
    grouped = weight.double().reshape(weight.shape[0], -1, GROUP)
    low = grouped.amin(-1).clamp(max=0)
    step = ((grouped.amax(-1).clamp(min=0) - low) / 15).half().double()
    zeros = (-low / step).round().clamp(1, 15)
    whole = ((grouped / step[..., None]).round() + zeros[..., None]).clamp(0, 15)
    return whole.reshape(weight.shape).long(), zeros.long(), step.half()


def words(matrix, pack, *settings):
    import numpy as np  # noqa: PLC0415 - needed with torch alone

    return torch.from_numpy(np.ascontiguousarray(pack(np, matrix.numpy(), *settings)))


def gptq(weight):
    whole, zeros, step = codes(weight)
    return {
        "qweight": words(whole.T, packed_words, 4),
        "qzeros": words(zeros - 1, packed_words, 4).T.contiguous(),
        "scales": step.T.contiguous(),
        "g_idx": torch.arange(weight.shape[1], dtype=torch.int32) // GROUP,
    }


def gguf_file(path, tensors, config):
    """Q8_0 by the `gguf` package; queries and keys in the order that llama.cpp writes."""
    gguf = pytest.importorskip("gguf")
    q8, layers = gguf.GGMLQuantizationType.Q8_0, config.num_hidden_layers
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_vocab_size(config.vocab_size)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    for name, tensor in tensors.items():
        count = heads.get(name.split(".")[-2])
        numbers = tensor.numpy()
        if count:
            halves = numbers.reshape(count, 2, -1, numbers.shape[1])
            numbers = halves.swapaxes(1, 2).reshape(numbers.shape)
        theirs = names.get_name(name, try_suffixes=(".weight",))
        if numbers.ndim > 1:
            writer.add_tensor(theirs, gguf.quants.quantize(numbers, q8), raw_dtype=q8)
        else:
            writer.add_tensor(theirs, numbers)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


BY_BYTES = [
    ("base", "base", "B is A: the same bytes in all 21.", 0),
    ("base", "merged", "B has the same tensors as A, other numbers in 4 of 21, all in", 1),
    ("gptq", "gptq-headless", "the same bytes in 62 of 63; it lost the head (lm_head).", 1),
    ("base", "bf16", "B has the tensors of A in BF16 (A is in F32)", 1),
    ("base", "gptq", "B has the tensors of A in gptq, 4 bits, groups of 32", 1),
]


@pytest.mark.parametrize(("first", "second", "said", "code"), BY_BYTES)
def test_the_first_line_says_what_people_made_of_a_model(models, first, second, said, code):
    done = run("diff", first, second, cwd=models)
    assert (done.returncode, done.stderr) == (code, "")
    assert said in done.stdout.splitlines()[0]
    assert "LoRA" not in done.stdout
    assert ("Not compared:" in done.stdout) == ("has the tensors of A in" in said)


def with_values(models, second):
    done = run("diff", "base", second, "--values", "--format", "json", cwd=models)
    assert (done.returncode, done.stderr) == (1, "")
    return json.loads(done.stdout)


def test_values_name_the_merge_of_a_lora_of_peft_and_its_rank(models):
    found = with_values(models, "merged")
    assert found["summary"].startswith("B is A merged with a LoRA: other numbers in 4 of 21")
    assert {row["rank of the difference"] for row in found["values"]} == {2}


@pytest.mark.parametrize(
    ("second", "form", "most"),
    [
        ("bf16", "in BF16 (A is in F32)", 2**-8),
        ("gptq", "in gptq, 4 bits", BITS_4),
        ("gguf", "in gguf, Q8_0 and F32", BITS_4 / 2**4),
    ],
)
def test_values_say_how_far_a_conversion_is_from_its_base(models, second, form, most):
    found = with_values(models, second)
    assert found["summary"].startswith(f"B is A {form}")
    assert "config differs" not in found["summary"]
    distances = [row["largest distance"] for row in found["values"]]
    assert 0 < max(distances) <= most
    assert found["not_compared"] == []
