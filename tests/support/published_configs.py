"""Configs of models whose figures somebody published: the keys that shape their tensors."""

from support.bert_configs import config_of

UNCASED = config_of()
CASED = config_of(vocab_size=28996)
CHINESE = config_of(vocab_size=21128)
LARGE_CHINESE = config_of(
    vocab_size=21128,
    hidden_size=1024,
    num_hidden_layers=24,
    num_attention_heads=16,
    intermediate_size=4096,
)
LLAMA_2_7B = config_of(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=11008,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=32,
    tie_word_embeddings=False,
)
LLAMA_31_8B = config_of(
    vocab_size=128256,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    tie_word_embeddings=False,
    attention_bias=False,
    mlp_bias=False,
)
LLAMA_32_1B = config_of(
    vocab_size=128256,
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=16,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=64,
    tie_word_embeddings=True,
)
MISTRAL_7B = config_of(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    tie_word_embeddings=False,
)
MIXTRAL_8X7B = config_of(
    vocab_size=32000,
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    num_local_experts=8,
    num_experts_per_tok=2,
    tie_word_embeddings=False,
)
QWEN_25_7B = config_of(
    vocab_size=152064,
    hidden_size=3584,
    intermediate_size=18944,
    num_hidden_layers=28,
    num_attention_heads=28,
    num_key_value_heads=4,
    tie_word_embeddings=False,
)
QWEN_3_8B = config_of(
    vocab_size=151936,
    hidden_size=4096,
    intermediate_size=12288,
    num_hidden_layers=36,
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    attention_bias=False,
    tie_word_embeddings=False,
)
GPT2 = config_of(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12, n_ctx=1024)
T5_SMALL = config_of(
    vocab_size=32128,
    d_model=512,
    d_kv=64,
    d_ff=2048,
    num_layers=6,
    num_heads=8,
    relative_attention_num_buckets=32,
    is_encoder_decoder=True,
)
QWEN_3_30B_A3B = config_of(
    model_type="qwen3_moe",
    vocab_size=151936,
    hidden_size=2048,
    intermediate_size=6144,
    moe_intermediate_size=768,
    num_hidden_layers=48,
    num_attention_heads=32,
    num_key_value_heads=4,
    head_dim=128,
    num_experts=128,
    num_experts_per_tok=8,
    decoder_sparse_step=1,
    mlp_only_layers=[],
    tie_word_embeddings=False,
)
PHI_4 = config_of(
    model_type="phi3",
    vocab_size=100352,
    hidden_size=5120,
    intermediate_size=17920,
    num_hidden_layers=40,
    num_attention_heads=40,
    num_key_value_heads=10,
    tie_word_embeddings=False,
)
PHI_3_MINI = config_of(
    model_type="phi3",
    vocab_size=32064,
    hidden_size=3072,
    intermediate_size=8192,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=32,
    tie_word_embeddings=False,
)
GEMMA_2B = config_of(
    model_type="gemma",
    vocab_size=256000,
    hidden_size=2048,
    intermediate_size=16384,
    num_hidden_layers=18,
    num_attention_heads=8,
    num_key_value_heads=1,
    head_dim=256,
)
GEMMA_2_2B = config_of(
    model_type="gemma2",
    vocab_size=256000,
    hidden_size=2304,
    intermediate_size=9216,
    num_hidden_layers=26,
    num_attention_heads=8,
    num_key_value_heads=4,
    head_dim=256,
)
GEMMA_2_9B = config_of(
    model_type="gemma2",
    vocab_size=256000,
    hidden_size=3584,
    intermediate_size=14336,
    num_hidden_layers=42,
    num_attention_heads=16,
    num_key_value_heads=8,
    head_dim=256,
)
BLOOM = config_of(
    model_type="bloom", n_embed=14336, n_layer=70, num_attention_heads=112, vocab_size=250880
)
GPT_J = config_of(
    model_type="gptj",
    vocab_size=50400,
    n_positions=2048,
    n_embd=4096,
    n_layer=28,
    n_head=16,
    n_inner=None,
    rotary_dim=64,
    tie_word_embeddings=False,
)
REDPAJAMA_7B = config_of(
    model_type="gpt_neox",
    vocab_size=50432,
    hidden_size=4096,
    intermediate_size=16384,
    num_hidden_layers=32,
    num_attention_heads=32,
    max_position_embeddings=2048,
    rotary_pct=1.0,
    tie_word_embeddings=False,
)
FALCON_180B = config_of(
    model_type="falcon",
    vocab_size=65024,
    hidden_size=14848,
    num_hidden_layers=80,
    num_attention_heads=232,
    num_kv_heads=8,
    new_decoder_architecture=True,
    multi_query=True,
    parallel_attn=True,
    alibi=False,
    bias=False,
)
OPT_1_3B = config_of(
    model_type="opt",
    vocab_size=50272,
    hidden_size=2048,
    ffn_dim=8192,
    num_hidden_layers=24,
    num_attention_heads=32,
    max_position_embeddings=2048,
    word_embed_proj_dim=2048,
    do_layer_norm_before=True,
)
CLIP_BASE_32 = config_of(
    model_type="clip",
    projection_dim=512,
    text_config={"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8},
    vision_config={"hidden_size": 768, "patch_size": 32},
)
LARGE_TEXT = {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}
LARGE_VISION = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "patch_size": 14,
}
CLIP_LARGE_14 = config_of(
    model_type="clip", projection_dim=768, text_config=LARGE_TEXT, vision_config=LARGE_VISION
)
CLIP_LARGE_14_336 = config_of(
    model_type="clip",
    projection_dim=768,
    text_config=LARGE_TEXT,
    vision_config={**LARGE_VISION, "image_size": 336},
)
SIGLIP_BASE = config_of(
    model_type="siglip",
    text_config={"model_type": "siglip_text_model"},
    vision_config={"model_type": "siglip_vision_model"},
)
LLAVA_15_7B = config_of(
    model_type="llava",
    vision_feature_layer=-2,
    text_config={"model_type": "llama", "vocab_size": 32064},
    vision_config={"model_type": "clip_vision_model", "image_size": 336, **LARGE_VISION},
)
SEVEN_BILLION = {
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
}
QWEN_2_VL_7B = config_of(
    model_type="qwen2_vl",
    **SEVEN_BILLION,
    vision_config={"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "hidden_size": 3584},
)
QWEN_2_VL_2B = config_of(
    model_type="qwen2_vl",
    vocab_size=151936,
    hidden_size=1536,
    intermediate_size=8960,
    num_hidden_layers=28,
    num_attention_heads=12,
    num_key_value_heads=2,
    tie_word_embeddings=True,
    vision_config={"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "hidden_size": 1536},
)
QWEN_25_TOWER = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16}
QWEN_25_VL_7B = config_of(
    model_type="qwen2_5_vl",
    **SEVEN_BILLION,
    vision_config={**QWEN_25_TOWER, "in_chans": 3, "out_hidden_size": 3584},
)
QWEN_25_VL_3B = config_of(
    model_type="qwen2_5_vl",
    vocab_size=151936,
    hidden_size=2048,
    intermediate_size=11008,
    num_hidden_layers=36,
    num_attention_heads=16,
    num_key_value_heads=2,
    tie_word_embeddings=True,
    vision_config={**QWEN_25_TOWER, "out_hidden_size": 2048},
)
QWEN_3_VL_8B = config_of(
    model_type="qwen3_vl",
    tie_word_embeddings=False,
    text_config={
        "vocab_size": 151936,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
    },
    vision_config={
        "depth": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_heads": 16,
        "out_hidden_size": 4096,
        "deepstack_visual_indexes": [8, 16, 24],
        "num_position_embeddings": 2304,
    },
)
PALIGEMMA_3B = config_of(
    model_type="paligemma",
    projection_dim=2048,
    text_config={
        "model_type": "gemma",
        "vocab_size": 257216,
        "hidden_size": 2048,
        "intermediate_size": 16384,
        "num_hidden_layers": 18,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
    },
    vision_config={
        "model_type": "siglip_vision_model",
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "patch_size": 14,
        "vision_use_head": False,
    },
)
BART_LARGE_CNN = config_of(
    model_type="bart",
    vocab_size=50264,
    d_model=1024,
    encoder_layers=12,
    encoder_ffn_dim=4096,
    encoder_attention_heads=16,
    decoder_layers=12,
    decoder_ffn_dim=4096,
    decoder_attention_heads=16,
    num_hidden_layers=12,
    max_position_embeddings=1024,
    id2label={"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"},
)
WHISPER_MEDIUM = config_of(
    model_type="whisper",
    vocab_size=51865,
    num_mel_bins=80,
    d_model=1024,
    encoder_layers=24,
    encoder_ffn_dim=4096,
    encoder_attention_heads=16,
    decoder_layers=24,
    decoder_ffn_dim=4096,
    decoder_attention_heads=16,
    num_hidden_layers=24,
    max_source_positions=1500,
    max_target_positions=448,
)
GPT_OSS_20B = config_of(
    model_type="gpt_oss",
    vocab_size=201088,
    hidden_size=2880,
    intermediate_size=2880,
    num_hidden_layers=24,
    num_attention_heads=64,
    num_key_value_heads=8,
    head_dim=64,
    num_local_experts=32,
    num_experts_per_tok=4,
    attention_bias=True,
    tie_word_embeddings=False,
)
MEDGEMMA_27B = config_of(
    model_type="gemma3",
    text_config={
        "vocab_size": 262208,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "attention_bias": False,
    },
    vision_config={
        "model_type": "siglip_vision_model",
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "num_channels": 3,
        "image_size": 896,
        "patch_size": 14,
        "vision_use_head": False,
    },
)
LFM2_8B_A1B = config_of(
    model_type="lfm2_moe",
    vocab_size=128000,
    hidden_size=2048,
    intermediate_size=7168,
    moe_intermediate_size=1792,
    num_hidden_layers=24,
    num_attention_heads=32,
    num_key_value_heads=8,
    num_experts=32,
    num_experts_per_tok=4,
    num_dense_layers=2,
    conv_L_cache=3,
    conv_bias=False,
    use_expert_bias=True,
    tie_word_embeddings=True,
    layer_types=[
        "full_attention" if number in {2, 6, 10, 14, 18, 21} else "conv" for number in range(24)
    ],
)
QWEN_35_18B = config_of(
    model_type="qwen3_5_moe_text",
    vocab_size=248320,
    hidden_size=2048,
    moe_intermediate_size=512,
    shared_expert_intermediate_size=512,
    num_hidden_layers=40,
    num_attention_heads=16,
    num_key_value_heads=2,
    head_dim=256,
    num_experts=128,
    num_experts_per_tok=8,
    linear_conv_kernel_dim=4,
    linear_key_head_dim=128,
    linear_value_head_dim=128,
    linear_num_key_heads=16,
    linear_num_value_heads=32,
    full_attention_interval=4,
)
DEEPSEEK_R1 = config_of(
    model_type="deepseek_v3",
    vocab_size=129280,
    hidden_size=7168,
    intermediate_size=18432,
    moe_intermediate_size=2048,
    num_hidden_layers=61,
    num_attention_heads=128,
    num_key_value_heads=128,
    n_shared_experts=1,
    n_routed_experts=256,
    num_experts_per_tok=8,
    first_k_dense_replace=3,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    num_nextn_predict_layers=1,
)
WAV2VEC2_LARGE = config_of(
    model_type="wav2vec2",
    hidden_size=1024,
    num_hidden_layers=24,
    num_attention_heads=16,
    intermediate_size=4096,
    do_stable_layer_norm=True,
    feat_extract_norm="layer",
    conv_bias=True,
    codevector_dim=768,
    proj_codevector_dim=768,
)
BLIP = config_of(model_type="blip", text_config={"vocab_size": 30524, "hidden_size": 768})
RESNET_18 = config_of(
    model_type="resnet",
    num_labels=1000,
    layer_type="basic",
    hidden_sizes=[64, 128, 256, 512],
    depths=[2, 2, 2, 2],
)
DINOV2_GIANT = config_of(
    model_type="dinov2",
    hidden_size=1536,
    num_hidden_layers=40,
    num_attention_heads=24,
    use_swiglu_ffn=True,
    image_size=518,
)
