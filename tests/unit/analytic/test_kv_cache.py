"""The key-value cache, held to what papers publish and to what transformers keeps."""

from importlib import import_module

import pytest
from hypothesis import HealthCheck, assume, given, settings

from auditor.analytic import Config, catalogue
from auditor.analytic.kv_cache import kv_cache

LLAMA_3 = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
LLAMA_405B = LLAMA_3 | {
    "hidden_size": 16384,
    "num_hidden_layers": 126,
    "num_attention_heads": 128,
    "intermediate_size": 53248,
}
QWEN_72B = {
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "intermediate_size": 29568,
    "vocab_size": 152064,
}


def cache_of(model_type, target, values):
    expectation = catalogue.expect(Config(values={"model_type": model_type, **values}), target)
    return kv_cache(expectation, values)


# Bytes a token in BF16. DeepSeek, "Insights into DeepSeek-V3" (arXiv 2505.09343), table 1: 70.272,
# 327.680 and 516.096 KB. Llama 2's 0.5 MB a token is in the paged-attention literature as 2 x 2
# bytes x 32 layers x 4,096.
@pytest.mark.parametrize(
    ("model_type", "target", "values", "published"),
    [
        ("deepseek_v3", "DeepseekV3ForCausalLM", {}, 70_272),
        ("qwen2", "Qwen2ForCausalLM", QWEN_72B, 327_680),
        ("llama", "LlamaForCausalLM", LLAMA_405B, 516_096),
        ("llama", "LlamaForCausalLM", {}, 524_288),
    ],
)
def test_the_cache_of_a_token_takes_what_is_published(model_type, target, values, published):
    assert 2 * cache_of(model_type, target, values).per_token == published


@pytest.mark.parametrize(
    ("model_type", "target"),
    [("bert", "BertForMaskedLM"), ("vit", "ViTModel"), ("mamba", "MambaForCausalLM")],
)
def test_a_model_without_keys_and_values_has_no_cache(model_type, target):
    assert cache_of(model_type, target, {}) is None


def test_a_layer_with_a_window_stops_growing_where_the_window_is_full():
    layer_types = ["sliding_attention", "full_attention"]
    values = {"num_hidden_layers": 2, "sliding_window": 8, "layer_types": layer_types}
    cache = cache_of("gemma2", "Gemma2ForCausalLM", values)
    window, full = cache.layers
    assert (window.window, full.window) == (8, None)
    assert cache.elements(8) == 8 * cache.per_token
    assert cache.elements(100) == 8 * window.elements + 100 * full.elements


def test_layers_that_share_keys_and_values_store_none():
    values = {"num_hidden_layers": 12, "num_kv_shared_layers": 4}
    assert len(cache_of("gemma4_text", "Gemma4ForCausalLM", values).layers) == 8


# Those whose small random configs run on a CPU as they are; the mixtures need sizes that their
# kernels take, composite models need images, Phi and StableLM turn a part of a head, and
# Falcon's keys are repeated for every query.
RUN = (
    "bloom cohere cohere2 gemma gemma2 gemma3_text gemma4_text glm4 gpt_neo gpt_neox granite llama "
    "mistral mpt olmo2 phi3 qwen2 qwen3 smollm3 starcoder2"
)
TOKENS = 5
LARGEST = 10_000_000  # parameters; some draws leave out a size, and stand for the full model


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", RUN.split())
def test_the_cache_is_as_large_as_the_one_that_transformers_fills(model_type):
    strategies = import_module(f"support.strategies.{catalogue.FILES[model_type]}")
    names = catalogue.siblings(model_type)
    target = next(name for name in names if name.endswith(("ForCausalLM", "LMHeadModel")))
    compared = 0

    @settings(max_examples=3, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategies.VALUES[model_type])
    def compare(values):
        nonlocal compared
        assume(values.get("num_hidden_layers", values.get("n_layer", 1)))
        expected, observed = _caches(model_type, target, values)
        assert observed == expected
        compared += 1

    compare()
    assert compared


def _turns_whole_pairs(written):
    """Rotary embeddings turn pairs of numbers; half a head of two is none."""
    heads = written.get("num_attention_heads") or 1
    width = written.get("head_dim") or written.get("hidden_size", 2 * heads) // heads
    part = (written.get("rope_parameters") or {}).get("partial_rotary_factor") or 1
    return int(width * part) % 2 == 0


def _caches(model_type, target, values):
    import torch  # noqa: PLC0415 - slow to import, and only here
    import transformers  # noqa: PLC0415

    config = transformers.AutoConfig.for_model(model_type, **values)
    written = config.to_dict()
    assume(_turns_whole_pairs(written))
    expectation = catalogue.expect(Config(values=written), target)
    assume(expectation.parameters < LARGEST)
    cache = kv_cache(expectation, written)
    model = getattr(transformers, target)(config)
    tokens = torch.zeros(1, TOKENS, dtype=torch.long)
    try:
        with torch.no_grad():
            kept = model(input_ids=tokens, use_cache=True).past_key_values
    except (RuntimeError, IndexError, TypeError):  # too small for five tokens, in some way
        assume(False)  # noqa: FBT003 - hypothesis has no name for it
    filled = sum(
        layer.keys.numel() + layer.values.numel()
        for layer in kept.layers
        if getattr(layer, "keys", None) is not None
    )
    # A window of transformers holds one token less than its width: the next one is on its way.
    expected = sum(
        layer.expanded * min(TOKENS, layer.window - 1 if layer.window else TOKENS)
        for layer in cache.layers
    )
    return expected, filled
