"""The class that an auto class such as AutoModelForMaskedLM builds for a model type.

The facts are from models/auto/modeling_auto.py, for the classes whose tensors this package can
derive from a config.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

AUTO_MODEL = "AutoModel"  # the auto class that builds the base class

_IMAGE_TEXT_TO_TEXT = (
    "BlipForConditionalGeneration Gemma3ForConditionalGeneration Gemma4ForConditionalGeneration "
    "LlavaForConditionalGeneration PaliGemmaForConditionalGeneration "
    "Qwen2VLForConditionalGeneration Qwen2_5_VLForConditionalGeneration "
    "Qwen3VLForConditionalGeneration Qwen3_5ForConditionalGeneration "
    "Qwen3_5MoeForConditionalGeneration VisionEncoderDecoderModel"
)
# The classes that an auto class builds although their names end differently from the auto class's.
_BUILDS: Mapping[str, str] = MappingProxyType(
    {
        "AutoModelForAudioClassification": (
            "HubertForSequenceClassification Wav2Vec2ForSequenceClassification "
            "WavLMForSequenceClassification"
        ),
        "AutoModelForCausalLM": (
            "BertLMHeadModel GPT2LMHeadModel Gemma3ForConditionalGeneration "
            "Gemma4ForConditionalGeneration OpenAIGPTLMHeadModel"
        ),
        "AutoModelForDocumentQuestionAnswering": "LayoutLMForQuestionAnswering",
        "AutoModelForImageSegmentation": "DetrForSegmentation",
        "AutoModelForImageTextToText": _IMAGE_TEXT_TO_TEXT,
        "AutoModelForMaskGeneration": "SamModel",
        "AutoModelForMaskedLM": "BartForConditionalGeneration MBartForConditionalGeneration",
        "AutoModelForMultimodalLM": _IMAGE_TEXT_TO_TEXT,
        "AutoModelForPreTraining": (
            "BartForConditionalGeneration BloomForCausalLM CamembertForMaskedLM "
            "DebertaV2ForMaskedLM DistilBertForMaskedLM GPT2LMHeadModel GPTBigCodeForCausalLM "
            "Gemma3ForConditionalGeneration Gemma4ForConditionalGeneration LayoutLMForMaskedLM "
            "LlavaForConditionalGeneration MPNetForMaskedLM Mamba2ForCausalLM MambaForCausalLM "
            "MptForCausalLM OpenAIGPTLMHeadModel PaliGemmaForConditionalGeneration "
            "RobertaForMaskedLM RwkvForCausalLM T5ForConditionalGeneration XLMRobertaForMaskedLM"
        ),
        "AutoModelForSeq2SeqLM": (
            "BartForConditionalGeneration M2M100ForConditionalGeneration "
            "MBartForConditionalGeneration MT5ForConditionalGeneration MarianMTModel "
            "PegasusForConditionalGeneration T5ForConditionalGeneration"
        ),
        "AutoModelForSpeechSeq2Seq": "WhisperForConditionalGeneration",
        "AutoModelForTextEncoding": (
            "AlbertModel BertModel CLIPTextModel DebertaV2Model DistilBertModel ElectraModel "
            "MT5EncoderModel RobertaModel T5EncoderModel XLMRobertaModel"
        ),
        "AutoModelForUniversalSegmentation": "DetrForSegmentation",
        "AutoModelForVisualQuestionAnswering": "BlipForQuestionAnswering",
        "AutoModelForAudioXVector": "Wav2Vec2ForXVector WavLMForXVector",
        "AutoModelForZeroShotImageClassification": "BlipModel CLIPModel SiglipModel",
    }
)
# Classes that the auto class with the matching ending does not build.
_OTHERS = frozenset(
    {
        "BlipForQuestionAnswering",
        "HubertForSequenceClassification",
        "LayoutLMForQuestionAnswering",
        "Wav2Vec2ForSequenceClassification",
        "WavLMForSequenceClassification",
    }
)


def is_auto(name: str) -> bool:
    """Return whether the name is that of an auto class, such as AutoModelForCausalLM."""
    return name == AUTO_MODEL or name.startswith(f"{AUTO_MODEL}For")


def resolve_auto_class(auto: str, base: str, siblings: Sequence[str]) -> str | None:
    """Return the sibling class that the auto class builds; None if it builds none of them."""
    if auto == AUTO_MODEL:
        return base
    own = _BUILDS.get(auto, "").split()
    ending = auto.removeprefix(AUTO_MODEL)
    named = (name for name in siblings if name.endswith(ending) and name not in _OTHERS)
    return next((name for name in siblings if name in own), next(named, None))
