"""The rule that models of images and audio come with a processor."""

from collections.abc import Iterator, Mapping

from auditor.companions.companion_files import PROCESSORS, TEKKEN
from auditor.findings import Finding, ProcessorMissing
from auditor.reconciler.repository_rules.repository_case import RepositoryCase, value_text

# Model types whose inputs are images or audio: transformers 5.23 has an image processor or a
# feature extractor for them; a test compares the list with it. Left out: timm_wrapper, whose
# config.json suffices; perceiver, whose published text model has none; t5gemma2_encoder and
# ultravbert, which are parts of other models.
PREPARED = frozenset(
    """
aimv2 aimv2_vision_model align altclip aria audio-spectrogram-transformer audioflamingo3
aya_vision beit bit blip blip-2 bridgetower canary chameleon chinese_clip chmv2 clap clip
clipseg clvp cohere2_vision cohere_asr cohere_compass colpali colqwen2 conditional_detr convnext
convnextv2 cosmos3_edge cosmos3_omni csm cvt dac data2vec-audio data2vec-vision deepseek_ocr2
deepseek_vl deepseek_vl_hybrid deformable_detr deimv2 deit depth_anything depth_pro detr dia
dinat dinov2 dinov3_vit donut-swin dots3_note dpt edgetam efficientloftr efficientnet
embedding_gemma2 emu3 encodec eomt eomt_dinov3 ernie4_5_vl_moe exaone4_5 flava florence2
focalnet fun_asr_nano fuyu gemma3 gemma3n gemma4 gemma4_unified git glm46v glm4v glm5_next
glm_image glmasr glmga glpn got_ocr2 gradium_phonon_tts granite4_vision granite_docling
granite_speech granite_speech5_ctc granite_speech5_encoder granite_speech_plus grounding-dino
groupvit hiera higgs_audio_v2_tokenizer hubert hunyuan_vl hyperclovax_vision_v2 idefics idefics2
idefics3 ijepa imagegpt inkling2 inkling_mm_model instructblip internvl janus kimi_k25 kosmos-2
kosmos-2.5 kyutai_speech_to_text lasr_ctc lasr_encoder layoutlmv2 layoutlmv3 layoutxlm levit
lfm2_vl lfm3_vl lightglue lighton_ocr llama4 llava llava_next llava_next_video llava_onevision
lw_detr mask2former maskformer metaclip_2 mgp-str mimi minicpm_ocr minicpmv4_6 minicpmv4_7
minimax_m3_vl mistral3 mistral_large4 mlcd mllama mm-grounding-dino mobilenet_v1 mobilenet_v2
mobilevit mobilevitv2 molmo2 moonshine moshi moss_transcribe_diarize muse_glimmer muse_spark
musicgen musicgen_melody nemo_speechlm nemotron3_5_asr nemotron3_diarization
nemotron_asr_streaming nemotron_asr_streaming_encoder nemotron_h_omni neomme neucodec nougat
omdet-turbo oneformer ovis2 owlv2 owlvit paddleocr_vl paligemma parakeet_ctc parakeet_encoder
parakeet_rnnt parakeet_tdt pe_audio pe_audio_video perception_lm phi4_multimodal pi0 pix2struct
pixio pixtral pocket_tts pocket_tts_audio_tokenizer poolformer pop2piano pp_chart2table
pp_doclayout_v2 pp_doclayout_v3 pp_doclayout_v4 pp_formulanet pp_lcnet pp_ocrv5_mobile_det
pp_ocrv5_mobile_rec pp_ocrv5_server_det pp_ocrv5_server_rec pp_ocrv6_medium_det
pp_ocrv6_small_det pp_ocrv6_small_rec pp_ocrv6_tiny_rec prompt_depth_anything pvt pvt_v2
qianfan_ocr qwen2_5_omni qwen2_5_vl qwen2_audio qwen2_vl qwen3_5 qwen3_5_moe qwen3_asr
qwen3_omni_moe qwen3_vl qwen4_exp regnet resnet rf_detr rt_detr sam sam2 sam2_video sam3
sam3_lite_text sam3_tracker sam3_tracker_video sam3_video sam_hq sapiens2 seamless_m4t
seamless_m4t_v2 segformer seggpt sew sew-d shieldgemma2 siglip siglip2 slanet slanext smolvlm
speech_to_text speecht5 step3p7 superglue superpoint swiftformer swin swin2sr swinv2 t5gemma2
table-transformer textnet timesformer tipsv2 tipsv2_dpt trocr tvp udop unispeech unispeech-sat
univnet unlimited_ocr upernet uvdoc vibevoice vibevoice_acoustic_tokenizer vibevoice_asr
video_llama_3 video_llava videomae vilt vipllava vit vit_mae vit_msn vitmatte vitpose vivit
voxtral voxtral_realtime wav2vec2 wav2vec2-bert wav2vec2-conformer wavlm whisper xclip xcodec
xcodec2 yolos zoedepth
    """.split()  # noqa: SIM905 - three hundred words read better than as many lines
)


_TEXT_ALONE = ("ForCausalLM", "TextModel", "TextModelWithProjection", "ForMaskedLM", "TextEncoder")
# Model types of two models, whose config contains two configs: vision-encoder-decoder and others.
PAIR = "encoder-decoder"
_PARTS = ("vision_config", "audio_config")


def _encodes(case: RepositoryCase) -> bool:
    """Whether the encoder of such a pair reads images or audio."""
    encoder = case.config.get("encoder")
    pair = str(case.config.get("model_type")).endswith(PAIR)
    return pair and isinstance(encoder, Mapping) and encoder.get("model_type") in PREPARED


def processor_findings(case: RepositoryCase) -> Iterator[Finding]:
    model_type, target = case.config.get("model_type"), case.target or ""
    if not case.whole or case.custom or not isinstance(model_type, str):
        return
    towers = [key for key in _PARTS if isinstance(case.config.get(key), Mapping)]
    prepared = model_type in PREPARED or _encodes(case)
    if not prepared or (target.endswith(_TEXT_ALONE) and not towers):
        return
    if case.names & {*PROCESSORS, TEKKEN} or target.endswith(_TEXT_ALONE[1:]):
        return  # mistral_common prepares images by tekken.json
    because = f"{towers[0]} and " if towers else ""
    yield ProcessorMissing(
        says=((case.config_file, "model_type", value_text(model_type)),),
        reason=f"{because}model_type {model_type} want a processor, and none of "
        f"{', '.join(PROCESSORS[:2])} is there",
        fix="save the processor beside the model: AutoProcessor.from_pretrained(BASE)."
        "save_pretrained(FOLDER)",
    )
