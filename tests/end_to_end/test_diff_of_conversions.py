"""`audit diff` of a checkpoint that transformers wrote, and of what other libraries make of it.

Folders are compared in tests/cases/comparing; packed numbers in tests/unit/values/test_unpacked.py.
"""

import json
import shutil
import warnings
from copy import deepcopy

import pytest
from support.running import run

pytestmark = [pytest.mark.oracle, pytest.mark.slow]
torch = pytest.importorskip("torch")


@pytest.fixture(scope="module", name="models")
def folders_of_the_models(tmp_path_factory):
    """The base, and every version of it, in a folder each."""
    import transformers  # noqa: PLC0415 - slow
    from safetensors.torch import load_file, save_file  # noqa: PLC0415 - needs torch

    top = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96}
    config = transformers.LlamaConfig(**sizes, **heads, max_position_embeddings=64)
    model = transformers.LlamaForCausalLM(config)
    model.save_pretrained(top / "base")
    model.save_pretrained(top / "shards", max_shard_size="100KB")
    deepcopy(model).to(torch.bfloat16).save_pretrained(top / "bf16")
    merged(model).save_pretrained(top / "merged")
    (top / "gguf").mkdir()
    gguf_file(top / "gguf/model.gguf", load_file(top / "base/model.safetensors"), config)
    vision = {**sizes, "num_attention_heads": 4, "image_size": 8, "patch_size": 4}
    towers = {"vision_config": transformers.CLIPVisionConfig(**vision), "text_config": config}
    both = transformers.LlavaConfig(**towers)
    transformers.LlavaForConditionalGeneration(both).save_pretrained(top / "llava")
    shutil.copytree(top / "llava", top / "blind")
    tensors = load_file(top / "llava/model.safetensors")
    rest = {name: one for name, one in tensors.items() if "vision_tower" not in name}
    save_file(rest, top / "blind/model.safetensors", {"format": "pt"})
    return top


def merged(model):
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    with warnings.catch_warnings():  # peft asks transformers for what is deprecated there
        warnings.simplefilter("ignore")
        return peft.get_peft_model(deepcopy(model), config).merge_and_unload()


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


def test_the_first_line_states_what_was_made_of_a_model(subtests, models):
    for first, second, summary, code in [
        ("base", "shards", "B is A: the same bytes in all 21; it is in SHARDS files, A in 1.", 0),
        ("base", "merged", "B has the same tensors as A, other numbers in 4 of 21, all in", 1),
        ("base", "bf16", "B has the tensors of A in BF16 (A is in F32)", 1),
        ("llava", "blind", "it lost the vision tower (vision_tower).", 1),
    ]:
        with subtests.test(first=first, second=second, summary=summary, code=code):
            done = run("diff", first, second, cwd=models)
            assert (done.returncode, done.stderr) == (code, "")
            shards = len(list((models / "shards").glob("*.safetensors")))
            assert summary.replace("SHARDS", str(shards)) in done.stdout.splitlines()[0]
            assert ("Not compared:" in done.stdout) == (second == "bf16")


def test_values_show_how_far_a_version_is_from_its_base(subtests, models):
    for second, summary, most in [
        ("merged", "B is A merged with a LoRA: other numbers in 4 of 21", 100),
        ("bf16", "B is A in BF16 (A is in F32)", 2**-8),
        ("gguf", "B is A in gguf, Q8_0 and F32", 2**-6),
    ]:
        with subtests.test(second=second, summary=summary, most=most):
            done = run("diff", "base", second, "--values", "--format", "json", cwd=models)
            assert (done.returncode, done.stderr) == (1, "")
            found = json.loads(done.stdout)
            assert found["summary"].startswith(summary)
            assert "config differs" not in found["summary"]
            distances = [row["largest distance"] for row in found["values"]]
            assert 0 < max(distances) <= most
            assert found["not_compared"] == []
            if second == "merged":
                assert {row["rank of the difference"] for row in found["values"]} == {2}
