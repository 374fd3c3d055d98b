"""What is published of models, against what their configs imply.

A row names the model, its config, the class, the figure and who published it. Where a publisher
erred, the figure is what the config implies, and the source says what is printed there.
"""

from collections.abc import Callable
from functools import partial
from math import ceil
from typing import NamedTuple

from support.published_configs import published
from support.published_figures import (
    BY_HAND_A,
    BY_HAND_B,
    BY_HAND_C,
    BY_HAND_D,
    BY_HAND_E,
    HALF_INDEX,
    HUB,
    INDEX,
    OPENAI,
    SUPERB,
    TORCHVISION,
    Published,
    active,
    file,
    in_bytes,
    millions,
    modules,
    norms,
    tensors,
    with_old_buffers,
    without_the_frozen,
)

from auditor.analytic import Expectation, Role, catalogue

# Rows of one model and class.
UNCASED = partial(Published, "bert-base-uncased", "BertModel")
LARGE = partial(Published, "large Chinese BERT", "BertForMaskedLM")
MASKED = partial(Published, "bert-base-chinese", "BertForMaskedLM")
CHINESE = partial(Published, "bert-base-chinese", "BertModel")
EMBEDDINGS = "bert.embeddings"
LAYER = "bert.encoder.layer.23"
FIRST = "encoder.layer.0"
BERTS = (
    UNCASED(109_482_240, BY_HAND_A),
    UNCASED(23_837_184, BY_HAND_A, modules("embeddings")),
    UNCASED(85_645_056, f"{BY_HAND_A}: the encoder, with the pooler", modules("encoder", "pooler")),
    UNCASED(85_054_464, BY_HAND_B, modules("encoder")),
    UNCASED(85_645_056 - 85_054_464, "both print 0 for the pooler", modules("pooler")),
    LARGE(21_635_072, BY_HAND_C, modules(f"{EMBEDDINGS}.word_embeddings")),
    LARGE(2_048, BY_HAND_C, modules(f"{EMBEDDINGS}.token_type_embeddings")),
    LARGE(524_288, BY_HAND_C, modules(f"{EMBEDDINGS}.position_embeddings")),
    LARGE(2_048, BY_HAND_C, modules(f"{EMBEDDINGS}.LayerNorm")),
    LARGE(22_163_456, BY_HAND_C, modules(EMBEDDINGS)),
    LARGE(
        4_198_400,
        BY_HAND_C,
        modules(f"{LAYER}.attention", but=(f"{LAYER}.attention.output.LayerNorm",)),
    ),
    LARGE(2_048, BY_HAND_C, modules(f"{LAYER}.attention.output.LayerNorm")),
    LARGE(
        8_393_728,
        BY_HAND_C,
        modules(f"{LAYER}.intermediate", f"{LAYER}.output", but=(f"{LAYER}.output.LayerNorm",)),
    ),
    LARGE(2_048, BY_HAND_C, modules(f"{LAYER}.output.LayerNorm")),
    LARGE(12_596_224, BY_HAND_C, modules(LAYER)),
    LARGE(324_472_832, f"{BY_HAND_C}, without its head", modules("bert")),
    MASKED(102_290_312, BY_HAND_D),
    MASKED(16_622_592, BY_HAND_D, modules(EMBEDDINGS)),
    MASKED(85_054_464, BY_HAND_D, modules("bert.encoder")),
    MASKED(613_256, BY_HAND_D, modules("cls")),
    CHINESE(102_267_648, "elements of the Hub's file without its heads"),
    CHINESE(16_621_056, BY_HAND_E, modules("embeddings", but=("embeddings.LayerNorm",))),
    CHINESE(38_400, BY_HAND_E, norms),
    CHINESE(
        28_348_416,
        f"{BY_HAND_E}, which has 2,359,296: one layer of twelve, and no biases",
        modules(f"{FIRST}.attention", but=(f"{FIRST}.output.LayerNorm",), times=12),
    ),
    CHINESE(
        56_669_184,
        f"{BY_HAND_E}, which has 56,623,104: no biases",
        modules(f"{FIRST}.intermediate.dense", f"{FIRST}.output.dense", times=12),
    ),
    CHINESE(
        101_677_056,
        f"{BY_HAND_E}, which has 75,641,856, the sum of what it has above",
        modules("embeddings", "encoder"),
    ),
    Published("bert-base-uncased", "BertForPreTraining", 110_106_428, HUB),
    Published("bert-base-uncased", "BertForPreTraining", 206, HUB, tensors),
    Published("bert-base-cased", "BertForPreTraining", 108_932_934, HUB),
    Published("bert-base-cased", "BertForPreTraining", 206, HUB, tensors),
    Published("bert-base-chinese", "BertForPreTraining", 102_882_442, HUB),
    Published("bert-base-chinese", "BertForPreTraining", 206, HUB, tensors),
)
ENCODERS_AND_DECODERS = (
    Published("t5-small", "T5ForConditionalGeneration", 60_506_624, HUB),
    Published(
        "t5-small",
        "T5ForConditionalGeneration",
        60_506_880,
        f"{HUB}, with a tensor that no class uses",
        file(".1.EncDecAttention.relative_attention_bias.weight", Role.EXTRA),
    ),
    Published(
        "wav2vec2-base", "Wav2Vec2ForPreTraining", 95.04, f"{SUPERB}, in millions", millions(2)
    ),
    Published(
        "wav2vec2-large",
        "Wav2Vec2ForPreTraining",
        317,
        # 317.39 to the nearest: their figure is cut, or of a variant without a few biases.
        f"{SUPERB}: 317.38 million",
        lambda expected: int(expected.parameters / 1e6),
    ),
)
LLAMAS = (
    Published("Llama-2-7b", "LlamaForCausalLM", 6_738_415_616, HUB),
    Published(
        "Llama-2-7b",
        "LlamaForCausalLM",
        6_738_417_664,
        f"{HUB}, with the frequencies of its rotations",
        file(".inv_freq", Role.LEGACY),
    ),
    Published("Llama-3.1-8B", "LlamaForCausalLM", 8_030_261_248, HUB),
    Published("Llama-3.2-1B", "LlamaForCausalLM", 1_235_814_400, HUB),
    Published("Mistral-7B-v0.1", "MistralForCausalLM", 7_241_732_096, HUB),
    Published("Mixtral-8x7B", "MixtralForCausalLM", 46_702_792_704, HUB),
    Published(
        "Mixtral-8x7B",
        "MixtralForCausalLM",
        12_879_925_248,
        "two experts of eight for a token",
        active,
    ),
    Published("Qwen2.5-7B", "Qwen2ForCausalLM", 7_615_616_512, HUB),
    Published("Qwen3-8B", "Qwen3ForCausalLM", 8_190_735_360, HUB),
    Published("Qwen3-30B-A3B", "Qwen3MoeForCausalLM", 30_532_122_624, HUB),
    Published("phi-4", "Phi3ForCausalLM", 14_659_507_200, HUB),
    Published("Phi-3-mini", "Phi3ForCausalLM", 7_642_159_104 // 2, HALF_INDEX),
    Published("gemma-2b", "GemmaForCausalLM", 5_012_344_832 // 2, HALF_INDEX),
    Published("gemma-2-2b", "Gemma2ForCausalLM", 5_228_683_776 // 2, HALF_INDEX),
    Published("gemma-2-9b", "Gemma2ForCausalLM", 9_241_705_984, HUB),
)
UNEVEN = (
    Published(
        "gpt-oss-20b",
        "GptOssForCausalLM",
        20_914_757_184,
        "what its page on the Hub counts once the MXFP4 blocks are unpacked",
    ),
    Published(
        "google/medgemma-27b-it",
        "Gemma3ForConditionalGeneration",
        54_864_813_280 // 2,
        # Its total_parameters, 28,842,036,848, counts the tied head, 262208 x 5376, once more.
        HALF_INDEX,
    ),
    Published(
        "google/medgemma-27b-it",
        "Gemma3ForConditionalGeneration",
        28_842_036_848,
        "total_parameters of its index, which counts the tied head once more",
        in_bytes(1, also=262_208 * 5376),
    ),
    Published(
        "google/medgemma-27b-it",
        "Gemma3ForConditionalGeneration",
        1247,
        "names in its index",
        tensors,
    ),
    Published(
        "LiquidAI/LFM2-8B-A1B",
        "Lfm2MoeForCausalLM",
        8_467_856_128,
        "total_parameters of the index of its 4-bit copy for MLX",
    ),
    Published(
        "Qwen3.5-35B-A3B pruned to 128 experts",
        "Qwen3_5MoeForCausalLM",
        37_087_995_136 // 2,
        HALF_INDEX,
    ),
    Published(
        "Qwen3.5-35B-A3B pruned to 128 experts",
        "Qwen3_5MoeForCausalLM",
        15_973,
        "names in its index",
        tensors,
    ),
    Published(
        "deepseek-ai/DeepSeek-R1",
        "DeepseekV3ForCausalLM",
        671_000,
        "its name, in millions, to the nearest billion",
        millions(-3),
    ),
)
GPTS = (
    Published("gpt2", "GPT2LMHeadModel", 124_439_808, HUB),
    Published(
        "gpt2",
        "GPT2LMHeadModel",
        137_022_720,
        f"{HUB}, with twelve causal masks",
        file(".attn.bias", Role.LEGACY),
    ),
    Published("bloom", "BloomModel", 176_247_271_424, HUB),
    Published("bloom", "BloomModel", 352_494_542_848, INDEX, in_bytes(2)),
    Published("bloom", "BloomForCausalLM", 176_247_271_424, f"{HUB}: the head is tied"),
    Published("bloom", "BloomForCausalLM", 352_494_542_848, INDEX, in_bytes(2)),
    Published(
        "GPT-J 6B",
        "GPTJForCausalLM",
        24_320_971_760,
        INDEX,
        with_old_buffers(4, bias=1, masked_bias=4),
    ),
    Published(
        "RedPajama-INCITE-7B",
        "GPTNeoXForCausalLM",
        13_731_385_408,
        INDEX,
        with_old_buffers(2, bias=1 / 8, masked_bias=2, inv_freq=2),  # 1/8 byte, as counted then
    ),
    Published(
        "falcon-180B",
        "FalconForCausalLM",
        359_045_130_240,
        f"{INDEX}: the head is stored though it is tied",
        in_bytes(2, also=65_024 * 14_848),
    ),
)
IMAGES_AND_TEXT = (
    Published("clip-vit-base-patch32", "CLIPModel", 151_277_313, OPENAI),
    Published("clip-vit-large-patch14", "CLIPModel", 427_616_513, OPENAI),
    Published("clip-vit-large-patch14-336", "CLIPModel", 427_944_193, OPENAI),
    Published(
        "siglip-base-patch16-224", "SiglipModel", 203_155_970, "the model's metadata in MTEB"
    ),
    Published("llava-1.5", "LlavaForConditionalGeneration", 7_063_427_072, HUB),
    Published("Qwen2-VL-2B", "Qwen2VLForConditionalGeneration", 2_208_985_600, HUB),
    Published("Qwen2-VL-7B", "Qwen2VLForConditionalGeneration", 8_291_375_616, HUB),
    Published("Qwen2.5-VL-3B", "Qwen2_5_VLForConditionalGeneration", 3_754_622_976, HUB),
    Published("Qwen2.5-VL-7B", "Qwen2_5_VLForConditionalGeneration", 8_292_166_656, HUB),
    Published("Qwen3-VL-8B", "Qwen3VLForConditionalGeneration", 8_767_123_696, HUB),
    Published(
        "paligemma-3b", "PaliGemmaForConditionalGeneration", 11_693_865_920, INDEX, in_bytes(4)
    ),
    Published(
        "blip-image-captioning-base",
        "BlipForConditionalGeneration",
        247_414_076,
        "a count in transformers 4, which counts the matrix of the head that is tied today",
        in_bytes(1, also=30_524 * 768),
    ),
)
IMAGES = (
    Published("resnet18", "ResNetForImageClassification", 11_689_512, TORCHVISION),
    Published("resnet50", "ResNetForImageClassification", 25_557_032, TORCHVISION),
    Published("swin_t", "SwinForImageClassification", 28_288_354, TORCHVISION),
    Published("convnext_tiny", "ConvNextForImageClassification", 28_589_128, TORCHVISION),
    Published(
        "sam_vit_b",
        "SamModel",
        93_735_472,
        "the original SAM, of whose positional embedding the matrix of 2 x 128 is a buffer",
        in_bytes(1, also=-2 * 128),
    ),
    Published(
        "deit-base-distilled",
        "DeiTForImageClassificationWithTeacher",
        87,
        "the paper's table of DeiT-B, distilled, in millions",
        millions(0),
    ),
    Published(
        "dinov2-giant",
        "Dinov2Model",
        1136.5,
        "timm's table of results: vit_giant_patch14_dinov2, in millions",
        millions(1),
    ),
    Published(
        "segformer-b0",
        "SegformerForSemanticSegmentation",
        3.8,
        "the paper's table of SegFormer-B0 on ADE20K, in millions",
        millions(1),
    ),
    Published(
        "detr-resnet-50",
        "DetrForObjectDetection",
        41_302_368,
        "its authors' training logs, `number of params`: without the stem, layer1 and all norms",
        without_the_frozen,
    ),
    Published(
        "vitmatte-small",
        "VitMatteForImageMatting",
        25.8,
        "the paper's table of ViTMatte-S, in millions",
        millions(1),
    ),
    Published(
        "dinov3-vit7b16",
        "DINOv3ViTModel",
        6716,
        "the paper's table of the teacher, in millions",
        millions(0),
    ),
)
FIGURES = (*BERTS, *ENCODERS_AND_DECODERS, *LLAMAS, *UNEVEN, *GPTS, *IMAGES_AND_TEXT, *IMAGES)


def test_a_published_figure_is_what_the_config_implies(subtests):
    for row in FIGURES:
        with subtests.test(row=row):
            assert row.count(catalogue.expect(published(row.model), row.target)) == row.figure, (
                row.source
            )


def test_a_published_formula_is_the_modules(subtests):
    """Of the count by hand of bert-base-chinese as a masked language model."""
    for module, formula in [
        ("bert.encoder", "N*(12*D^2 + 13*D)"),
        ("bert.encoder.layer.0", "12*D^2 + 13*D"),
        ("bert.embeddings", "V*D + L*D + T*D + 2*D"),  # T is 2
        ("cls", "V + D^2 + 3*D"),
    ]:
        with subtests.test(module=module, formula=formula):
            expected = catalogue.expect(published("bert-base-chinese"), "BertForMaskedLM")
            assert expected.modules[module].formula == formula


# --- published files ------------------------------------------------------------------------------


class PublishedFile(NamedTuple):
    """The size of a file on the Hub, or of several: its tensors, and bytes around each of them."""

    model: str
    target: str
    size: int
    stored: Callable[[Expectation], tuple[int, int]]  # how many bytes and tensors
    around: tuple[int, int] = (110, 140)  # bytes of a header for each tensor, in healthy files


def plain(width: int):
    return lambda expected: (width * expected.parameters, tensors(expected))


UNPACKED = ("embed_tokens.weight", "head.weight", ".gate.weight", "eh_proj.weight")


def in_fp8(expected: Expectation) -> tuple[int, int]:
    """With a scale in F32 for 128 x 128 numbers, all that a layer multiplies by.

    The rest is in BF16, the routers' corrections in F32.
    """
    size, count = 0, 0
    for tensor in expected.tensors:
        packed = len(tensor.shape) == 2 and not tensor.name.endswith(UNPACKED)
        scales = ceil(tensor.shape[0] / 128) * ceil(tensor.shape[-1] / 128) if packed else 0
        width = 1 if packed else 2 if tensor.role.learned else 4
        size += tensor.elements * width + 4 * scales
        count += 1 + bool(scales)
    return size, count


FILES = (
    # The bias of the logits, which a class of today would store, too, is not in this one:
    # 4 * 50264 bytes more would be more than the file has.
    PublishedFile("bart-large-cnn", "BartForConditionalGeneration", 1_625_222_120, plain(4)),
    PublishedFile("whisper-medium", "WhisperForConditionalGeneration", 3_055_544_304, plain(4)),
    # A pickle, which adds some hundred bytes for each of 388 tensors.
    PublishedFile("opt-1.3b", "OPTForCausalLM", 2_631_639_353, plain(2), (0, 500)),
    # 163 files, with one layer for drafting beside its class.
    PublishedFile("deepseek-ai/DeepSeek-R1", "DeepseekV3ForCausalLM", 688_586_727_753, in_fp8),
)


def test_a_published_file_is_its_tensors_and_a_header(subtests):
    for row in FILES:
        with subtests.test(row=row):
            size, count = row.stored(catalogue.expect(published(row.model), row.target))
            least, most = row.around
            assert least * count < row.size - size < most * count
