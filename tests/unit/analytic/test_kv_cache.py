"""The key-value cache, held to what papers publish and to what transformers keeps."""

from importlib import import_module

import pytest
from catalogue.described import has_rule
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import one_in

from auditor.analytic import Config, catalogue, generated
from auditor.analytic.cache_rule import kv_cache
from auditor.analytic.kv_cache import KVCache, LayerCache, generates

GIB = 2**30
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
# As in the published config.json files, without what leaves the cache alone.
GEMMA_3_27B = {
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 5376,
        "num_attention_heads": 32,
        "num_hidden_layers": 62,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "sliding_window": 1024,
    }
}
GEMMA_3_1B = {
    "hidden_size": 1152,
    "num_attention_heads": 4,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "sliding_window": 512,
    "sliding_window_pattern": 6,
}
COMMAND_R7B = {
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
    "sliding_window_pattern": 4,
}


def cache_of(model_type, target, values):
    config = Config(values={"model_type": model_type, **values})
    return kv_cache(catalogue.expect(config, target), config)


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
    ("model_type", "target", "values", "tokens", "published"),
    [
        ("gemma3", "Gemma3ForConditionalGeneration", GEMMA_3_27B, 131_072, "10.41 GiB"),
        ("deepseek_v3", "DeepseekV3ForCausalLM", {}, 163_840, "10.72 GiB"),
        ("cohere2", "Cohere2ForCausalLM", COMMAND_R7B, 131_072, "4.38 GiB"),
        ("llama", "LlamaForCausalLM", LLAMA_3, 131_072, "16.00 GiB"),
        ("gemma3_text", "Gemma3ForCausalLM", GEMMA_3_1B, 32_768, "0.14 GiB"),
    ],
)
def test_the_static_cache_of_a_context_in_16_bits(model_type, target, values, tokens, published):
    kept = 2 * cache_of(model_type, target, values).elements(tokens, static=True)
    assert f"{kept / GIB:.2f} GiB" == published


def test_a_gemma_of_1b_keeps_139_mib():
    cache = cache_of("gemma3_text", "Gemma3ForCausalLM", GEMMA_3_1B)
    assert round(2 * cache.elements(32_768) / 2**20) == 139


@pytest.mark.parametrize(
    ("model_type", "target"), [("bert", "BertForMaskedLM"), ("vit", "ViTModel")]
)
def test_a_model_that_does_not_decode_has_no_cache(model_type, target):
    assert cache_of(model_type, target, {}) is None


def test_a_window_keeps_a_token_less_if_the_cache_grows_and_all_if_it_is_static():
    layer_types = ["sliding_attention", "full_attention"]
    values = {"num_hidden_layers": 2, "sliding_window": 8, "layer_types": layer_types}
    cache = cache_of("gemma2", "Gemma2ForCausalLM", values)
    window, full = cache.layers
    assert (window.window, full.window) == (8, None)
    assert cache.elements(7) == 7 * cache.per_token
    assert cache.elements(100) == 7 * window.elements + 100 * full.elements
    assert cache.elements(100, static=True) == 8 * window.elements + 100 * full.elements


def test_layers_that_share_keys_and_values_store_none():
    values = {"num_hidden_layers": 12, "num_kv_shared_layers": 4}
    assert len(cache_of("gemma4_text", "Gemma4ForCausalLM", values).layers) == 8


@given(st.integers(1, 9999), st.one_of(st.none(), st.integers(2, 99)), st.integers(1, 64))
def test_blocks_hold_the_tokens_of_a_growing_cache_and_waste_less_than_two(tokens, window, block):
    cache = KVCache(layers=(LayerCache(0, 3, window),))
    wasted = cache.paged(tokens, block) - cache.elements(tokens)
    assert 0 <= wasted < 2 * 3 * block


def test_a_model_with_states_has_no_blocks():
    assert KVCache(layers=(LayerCache(0, 0, None, 8),)).paged(5, 16) is None


# --- held to transformers -------------------------------------------------------------------------

TOKENS, LONGEST = 9, 16
ENCODED = 4  # tokens of an encoder
LARGEST = 8_000_000  # parameters; some draws leave out a size, and stand for the full model

# The types with a closed form, without those whose draws do not decode here: composite ones draw
# full towers, M2M100 draws no padding token, and Phi and StableLM turn a part of a head.
DECODING = (
    "bart bloom cohere cohere2 deepseek_v3 gemma gemma2 gemma3_text gemma4_text glm4 "
    "glm4_moe gpt2 gpt_bigcode gpt_neo gpt_neox gpt_oss granite lfm2 lfm2_moe "
    "llama mamba mamba2 marian mbart mistral mixtral mpt mt5 olmo2 olmoe opt paligemma "
    "pegasus phi3 qwen2 qwen2_moe qwen3 qwen3_5_text qwen3_moe smollm3 starcoder2 t5 "
    "whisper"
)
# Types without a closed form, whose cache the oracle measures on the meta device.
MEASURED = {
    "bamba": {"attn_layer_indices": [1]},
    "falcon_h1": {},
    "falcon_mamba": {},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1, "num_experts": 2},
    "nemotron_h": {"layers_block_type": ["mamba", "attention"]},
    "qwen3_next": {"layer_types": ["linear_attention", "full_attention"], "num_experts": 16},
}


MOST_COMPARED = max(1, settings.default.max_examples // 60)  # a thorough run compares six draws


def _decoding_class(model_type):
    names = catalogue.siblings(model_type) + catalogue.siblings(model_type.removesuffix("_text"))
    return next(name for name in names if generates(name))


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", one_in(4, DECODING.split()))
def test_the_cache_is_as_large_as_the_one_that_transformers_fills(model_type):
    strategies = import_module(f"support.strategies.{catalogue.FILES[model_type]}")
    compared = 0

    # The same draws in each run: some types decode only a few of them.
    @settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(strategies.VALUES[model_type])
    def compare(values):
        nonlocal compared
        if compared < MOST_COMPARED:
            compared += _compare_with_library(model_type, values)

    compare()
    if not compared:
        pytest.skip("none of the drawn configs can decode")


SMALL = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 6, "vocab_size": 99}
TOWER = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "image_size": 8}


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("model_type", "values"),
    [
        ("falcon", SMALL | {"new_decoder_architecture": True, "num_kv_heads": 2}),
        ("falcon", SMALL | {"multi_query": True}),
        ("gptj", SMALL | {"rotary_dim": 8}),
        (
            "granitemoe",
            SMALL | {"num_key_value_heads": 2, "intermediate_size": 8, "num_local_experts": 4},
        ),
        (
            "llava",
            {
                "text_config": SMALL | {"model_type": "llama", "intermediate_size": 9},
                "vision_config": TOWER
                | {"model_type": "clip_vision_model", "patch_size": 4, "num_attention_heads": 1},
            },
        ),
        (
            "gemma3",
            {
                "text_config": SMALL | {"head_dim": 8, "sliding_window": 4, "intermediate_size": 9},
                "vision_config": TOWER | {"patch_size": 4, "num_attention_heads": 1},
            },
        ),
    ],
)
def test_the_cache_of_a_fixed_config_is_the_one_that_transformers_fills(model_type, values):
    assert _compare_with_library(model_type, values) == 2


@pytest.mark.oracle
@pytest.mark.parametrize("target", one_in(25, generated.index().caches))
def test_the_cache_of_a_generated_class_is_the_one_that_transformers_fills(target):
    assert has_rule(target)


def test_the_cache_of_a_generated_class_is_unknown_if_a_window_is_stated():
    for window, known in [(None, True), (8, False)]:
        config = Config(values={"model_type": "arcee", "sliding_window": window})
        assert bool(kv_cache(generated.expect(config, "ArceeForCausalLM"), config)) is known


def _compare_with_library(model_type, values):
    """How many of a growing and a static cache were compared; a draw may be too small to decode."""
    import transformers  # noqa: PLC0415 - slow to import, and only here

    library_config = transformers.AutoConfig.for_model(model_type, **values)
    config = Config(values=library_config.to_dict())
    target = _decoding_class(model_type)
    expectation = catalogue.expect(config, target)
    if expectation.parameters > LARGEST or values.get("add_cross_attention"):
        return 0
    cache = kv_cache(expectation, config)
    compared = 0
    for static in (False, True):
        try:
            model = getattr(transformers, target)(library_config).eval()
            filled = _filled(model, **_static_cache(library_config) if static else {})
        except (
            RuntimeError,
            IndexError,
            TypeError,
            AttributeError,
            ValueError,
            ArithmeticError,
            Warning,
        ):
            continue
        assert _sizes(filled) == _expected(cache, LONGEST if static else TOKENS, static=static)
        compared += bool(cache.layers)
    return compared


def _static_cache(config):
    import transformers  # noqa: PLC0415 - slow to import, and only here

    own = transformers.StaticCache(config, LONGEST)
    if not config.is_encoder_decoder:
        return {"cache": own}
    return {"cache": transformers.EncoderDecoderCache(own, transformers.DynamicCache())}


def _filled(model, **kept):
    import torch  # noqa: PLC0415 - slow to import, and only here

    ids = torch.zeros(1, TOKENS, dtype=torch.long)
    inputs = {"input_ids": ids}
    if model.config.is_encoder_decoder:
        inputs = {"decoder_input_ids": ids, "input_ids": ids[:, :ENCODED]}
    if model.main_input_name == "input_features":
        del inputs["input_ids"]
        frames = 2 * model.config.max_source_positions
        inputs["input_features"] = torch.zeros(1, model.config.num_mel_bins, frames)
    with torch.no_grad():
        run = model(**inputs, **kept, use_cache=True)
    return run.get("past_key_values") or run.get("cache_params")


def _sizes(filled):
    """Keys and values of each layer, its states, and what the layers have of the encoder."""
    own = getattr(filled, "self_attention_cache", filled)
    sizes = [(number, _kept(layer), _states(layer)) for number, layer in enumerate(own.layers)]
    cross = getattr(filled, "cross_attention_cache", None)
    return [size for size in sizes if any(size[1:])], sum(map(_kept, cross.layers if cross else ()))


def _kept(layer):
    both = (getattr(layer, name, None) for name in ("keys", "values"))
    return sum(tensor.numel() for tensor in both if tensor is not None)


def _states(layer):
    kinds = (getattr(layer, name, {}) for name in ("conv_states", "recurrent_states"))
    return sum(state.numel() for kind in kinds for state in kind.values() if state is not None)


def _expected(cache, tokens, *, static):
    layers = [
        (one.layer, one.elements * one.tokens(tokens, static=static), one.states + one.wide_states)
        for one in cache.layers
    ]
    return layers, cache.cross * (cache.frames or ENCODED)


@pytest.mark.oracle
@pytest.mark.parametrize("model_type", one_in(2, MEASURED))
def test_a_cache_measured_without_numbers_is_the_one_that_numbers_fill(model_type):
    import torch  # noqa: PLC0415 - slow to import, and only here
    import transformers  # noqa: PLC0415 - likewise

    from auditor.oracle.measured_cache import measured_cache  # noqa: PLC0415 - likewise

    small = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 99, "num_hidden_layers": 2}
    config = transformers.AutoConfig.for_model(model_type, **small | MEASURED[model_type])
    model_class = transformers.AutoModelForCausalLM._model_mapping[type(config)]  # noqa: SLF001
    with torch.device("meta"):
        cache = measured_cache(model_class(config))
    assert _sizes(_filled(model_class(config).eval())) == _expected(cache, TOKENS, static=False)
