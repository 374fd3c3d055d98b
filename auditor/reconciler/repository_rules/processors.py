"""Models of images and audio come with what prepares them."""

from collections.abc import Iterator, Mapping

from auditor.companions.companion_files import PROCESSORS, TEKKEN
from auditor.reconciler.findings import Finding, ProcessorMissing
from auditor.reconciler.repository_rules.modalities import PREPARED
from auditor.reconciler.repository_rules.repository_case import RepositoryCase, value_text

_TEXT_ALONE = ("ForCausalLM", "TextModel", "TextModelWithProjection", "ForMaskedLM", "TextEncoder")
# Model types of two models, whose config has one of each: vision-encoder-decoder and its kin.
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
