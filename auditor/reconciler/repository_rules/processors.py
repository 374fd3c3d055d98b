"""The rules that a model of images or audio has a processor, and that its class exists."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from msgspec.json import decode

from auditor.companions.companion_files import PROCESSORS, TEKKEN
from auditor.findings import Finding, ProcessorMissing, ProcessorUnknown
from auditor.observation import Checked
from auditor.reconciler.repository_rules.repository_case import RepositoryCase, value_text

_DATA = Path(__file__).parents[2] / "data" / "processors.json"

# Types that have a processor and work without the file: timm_wrapper's config.json suffices, the
# published text model of perceiver has none, the other two are parts of other models.
_WITHOUT_FILE = frozenset({"timm_wrapper", "perceiver", "t5gemma2_encoder", "ultravbert"})
_OF_INPUTS = frozenset({"image_processor_type", "feature_extractor_type"})


class LibraryProcessors(NamedTuple):
    """The processor classes of transformers, listed by `tools/rebuild_processors.py`."""

    transformers: str  # version of the library
    classes: frozenset[str]
    by_type: Mapping[str, Mapping[str, str]]  # model type -> key of a processor's config -> class
    tokenizers: frozenset[str]  # model types that have a tokenizer

    def prepares(self, model_type: object) -> bool:
        """Whether a model type has images or audio as inputs."""
        keys = self.by_type.get(str(model_type), {}).keys()
        return not _OF_INPUTS.isdisjoint(keys) and model_type not in _WITHOUT_FILE

    def has(self, name: str) -> bool:
        """Whether the auto classes of transformers 5 find a class of that name."""
        base = name.removesuffix("Fast")
        names = {name, base, f"{base}Pil", base.replace("FeatureExtractor", "ImageProcessor")}
        return not names.isdisjoint(self.classes)


@cache
def library_processors() -> LibraryProcessors:
    data = decode(_DATA.read_bytes())
    return LibraryProcessors(
        data["transformers"],
        frozenset(data["classes"]),
        data["by_type"],
        frozenset(data["tokenizers"]),
    )


_TEXT_ALONE = ("ForCausalLM", "TextModel", "TextModelWithProjection", "ForMaskedLM", "TextEncoder")
# Model types whose config contains the configs of two models: vision-encoder-decoder and others.
PAIR = "encoder-decoder"
_PARTS = ("vision_config", "audio_config")


_DECODERS = ("ForCausalLM", "LMHeadModel")
# Text encoders of pipelines, whose tokenizer lies in another folder.
_ENCODERS = ("TextModel", "TextModelWithProjection", "TextEncoder", "EncoderModel")


def needs_tokenizer(case: RepositoryCase) -> bool:
    """Whether the model reads text, by a tokenizer that belongs beside its weights."""
    target, config = case.target or "", case.config
    is_of_text = config.get("model_type") in library_processors().tokenizers
    is_of_text |= target.endswith(_DECODERS) and "num_codebooks" not in config
    is_part = case.is_custom or target.endswith(_ENCODERS)
    return bool(is_of_text and case.rows and not is_part)


def processor_findings(case: RepositoryCase) -> Iterator[Finding]:
    model_type, target = case.config.get("model_type"), case.target or ""
    text = "whether the model needs a processor is not known"
    case.checked["processor"] = _class_answer(case) or Checked("incomparable", text)
    if case.is_custom or not isinstance(model_type, str):
        return
    towers = [key for key in _PARTS if isinstance(case.config.get(key), Mapping)]
    prepares = library_processors().prepares
    encoder = case.config.get("encoder") if model_type.endswith(PAIR) else None
    of_encoder = isinstance(encoder, Mapping) and prepares(encoder.get("model_type"))
    prepared = prepares(model_type) or of_encoder
    files = case.names & {*PROCESSORS, TEKKEN}  # mistral_common uses tekken.json to prepare images
    is_text = target.endswith(_TEXT_ALONE) and not towers
    if not prepared or is_text or target.endswith(_TEXT_ALONE[1:]):
        if case.kind is not None and not files:
            text = f"{target or model_type} reads no images or audio, or needs no file for them"
            case.checked["processor"] = Checked("unneeded", text)
        return
    if files:
        return
    case.checked["processor"] = case.absence("no file configures a processor")
    if not case.is_complete:
        return
    because = f"{towers[0]} and " if towers else ""
    yield ProcessorMissing(
        says=((case.config_file, "model_type", value_text(model_type)),),
        reason=f"{because}model_type {model_type} need a processor: expected "
        f"{' or '.join(PROCESSORS[:2])}, and neither is there",
        fix="save the processor beside the model: AutoProcessor.from_pretrained(BASE)."
        "save_pretrained(FOLDER)",
    )


_KEYS = (
    *("image_processor_type", "video_processor_type", "feature_extractor_type"),
    "processor_class",
)
# The objects in processor_config.json that configure a part of the processor.
_PARTS_OF_PROCESSOR = ("", "image_processor", "video_processor", "feature_extractor")


def class_findings(case: RepositoryCase) -> Iterator[Finding]:
    """Report processor classes that transformers does not have.

    If the library does not know the model type either, the model is newer than the library, and
    there is no finding.
    """
    library = library_processors()
    if case.is_custom or case.kind is None:
        return
    classes = library.by_type.get(str(case.config.get("model_type")), {})
    for file, path, key, name in _named_classes(case):
        if not library.has(name):
            place, instead = f"{path}{key}", classes.get(key)
            fix = f"set {place} of {file} to {instead}" if instead else f"correct {place} of {file}"
            yield ProcessorUnknown(
                says=((file, place, value_text(name)),),
                reason=f"transformers {library.transformers} has no class {name}",
                fix=fix,
            )


def _named_classes(case: RepositoryCase) -> Iterator[tuple[str, str, str, str]]:
    """Yield (file, path, key, name) of each class of transformers that a processor's files name."""
    for file in PROCESSORS:
        whole = case.companions.object(file) or {}
        for part in _PARTS_OF_PROCESSOR:
            values = whole.get(part) if part else whole
            if not isinstance(values, Mapping) or "auto_map" in values:
                continue
            for key in _KEYS:
                name = values.get(key)
                if isinstance(name, str) and name:
                    yield file, f"{part}." if part else "", key, name


def _class_answer(case: RepositoryCase) -> Checked | None:
    """Return whether the processor's classes are those of the model's type; None without a file."""
    files = [file for file in (*PROCESSORS, TEKKEN) if file in case.names]
    if not files or (unread := case.unusable(*files)):
        return unread if files else None
    names = ", ".join(files)
    by_type = library_processors().by_type.get(str(case.config.get("model_type")), {})
    named = list(_named_classes(case))
    other = [name for *_, key, name in named if _alike(name) != _alike(by_type.get(key, ""))]
    lacks_class = not _OF_INPUTS & by_type.keys() <= {key for *_, key, _ in named}
    if case.is_custom or not named or lacks_class or TEKKEN in files:
        return Checked("incomparable", f"{names} is there; its class cannot be compared")
    if other:
        text = f"{names} names {other[0]}, which is not the class of the type in transformers"
        return Checked("incomparable", text)
    classes = ", ".join(dict.fromkeys(name for *_, name in named))
    return Checked("compared", f"{names} names what transformers has for the type: {classes}")


def _alike(name: str) -> str:
    """Return the name that a class shares with its variants, such as faster or older ones."""
    return re.sub("(Fast|Pil)$", "", name).replace("FeatureExtractor", "ImageProcessor")
