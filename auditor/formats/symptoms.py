"""Messages that loaders print, and what to look at: for `audit symptoms` and docs/symptoms.md.

The patterns come from the sources of transformers, PEFT, torch, safetensors, MLX, vLLM and
llama.cpp. They are searched for in the pasted text, with its spaces and line ends as one space.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from auditor.formats.text import StyledLine, lines_text, wrapped

_MOST_LETTERS = 200_000  # of a pasted text that are searched
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")


class Symptom(NamedTuple):
    """A message of a loader: what it means, the command that explains it, and what to do then."""

    name: str
    pattern: str  # what the message contains, in any case of letters
    meaning: str
    command: str
    then: str
    kinds: tuple[str, ...] = ()  # findings and causes that `audit explain-finding` describes


SYMPTOMS = (
    Symptom(
        "newly initialized",
        r"newly initialized|\|\s*MISSING\b|were not initialized from the model checkpoint"
        r"|not initialized? +from checkpoint|probably TRAIN this model|missing_keys=\[\W*\w"
        r"|missing key\(s\)|missing keys\b|Missing \d+ parameters|missing tensor"
        r"|tensor '[^']{1,200}' not found"
        r"|weights are not initialized",
        "Tensors that the class needs are not stored. A head that the base model never had, such "
        "as "
        "classifier or score, starts from random numbers and has to be trained; any other tensor "
        "is "
        "lost or has another name.",
        "audit MODEL --as AutoModelForSequenceClassification",
        "train the head if the report lists it under `Not stored`; a finding `missing` has a cause "
        "with a fix",
        ("newly-initialized", "missing", "other-class", "wrapper-prefix", "lost-part"),
    ),
    Symptom(
        "unexpected",
        r"\|\s*UNEXPECTED\b|were not used when initializing|unexpected key\(s\)|unexpected keys\b"
        r"|unexpected_keys=\[\W*\w|Received (?:\d+ )?parameters not in model"
        r"|wrong number of tensors"
        r"|unknown tensor"
        r"|no module or parameter named",
        "Tensors are stored that the class does not use: those of a head of another class are "
        "harmless, others have another name than the class expects.",
        "audit MODEL",
        "nothing if they are `unused`; if they are `unexpected`, do what the cause says",
        ("unused", "unexpected", "wrapper-prefix", "moved-names"),
    ),
    Symptom(
        "size mismatch",
        r"(?:size|shape) mismatch|shape == loaded_weight\.shape|\|\s*MISMATCH\b"
        r"|ignore_mismatched_sizes|Expected shape .{0,80} but received"
        r"|Attempted to load weight|has wrong shape|found shape .{0,80} in the checkpoint",
        "Tensors have other shapes than the config implies: a config of another size, other "
        "labels, "
        "or a resized vocabulary.",
        "audit MODEL",
        "correct the keys that the report names, or take the config of the model whose weights "
        "these are; ignore_mismatched_sizes=True starts such tensors from random numbers",
        ("mismatched", "config-field", "other-size", "half-resized"),
    ),
    Symptom(
        "a name that the engine does not know",
        r"KeyError: .{0,4}[\w.]{1,300}\.(?:weight|bias|\w*scales?|qweight|qzeros|g_idx"
        r"|\w*lora\w*)\b"
        r"|KeyError: .{0,4}[\w.]{0,300}layers\.\d",
        "vLLM, SGLang and others raise KeyError for a tensor that their class has no parameter "
        "for: "
        "another name, an adapter, or quantization data that the config does not declare.",
        "audit MODEL --for vllm",
        "do what the report says of the engine; else what the cause says",
        ("engine-refuses", "quantization-undeclared", "unmerged-adapter", "unexpected"),
    ),
    Symptom(
        "an adapter that does not fit",
        r"missing adapter keys|Target modules? .{0,400}not found in the base"
        r"|Target module .{0,400}is not supported"
        r"|Loading adapter weights from .{0,400} led to|adapter_config\.json|base_model\.model\."
        r"|LoRA tensor\(s\) have invalid shape|Adapter name .{0,80} should not be contained",
        "The adapter's names or shapes are not those of its base: another base or class, another "
        "adapter name, or weights that were not gathered before they were saved.",
        "audit ADAPTER",
        "load it with the base and the class that the report names; else save it again",
        ("other-base", "resized-base", "no-op-adapter", "unmerged-adapter"),
    ),
    Symptom(
        "a file that is not there",
        r"does not appear to have a file named|Error no file named|No such file or directory"
        r"|FileNotFoundError|Cannot find any model weights|No safetensors found",
        "The folder has no weights under the names that the loader looks for, or a shard is "
        "absent.",
        "audit MODEL",
        "upload the shard again, or load with variant= if the report mentions a variant",
        ("missing-component", "partial-upload", "shards-not-loaded", "stale-index"),
    ),
    Symptom(
        "a broken file",
        r"SafetensorError|deserializing header|HeaderTooLarge|MetadataIncompleteBuffer"
        r"|InvalidHeader|invalid load key|PytorchStreamReader|Ran out of input"
        r"|failed finding central directory|invalid magic|UnpicklingError: pickle data",
        "A weight file is cut off, empty, a Git LFS pointer, or not of the format that its name "
        "says.",
        "audit MODEL --verify",
        "download it again (git lfs pull, hf download), or upload it again",
        ("bad-header", "bad-size", "pointer-file", "truncated"),
    ),
    Symptom(
        "a token beyond the embedding",
        r"index out of range in self|device-side assert|srcIndex < srcSelectDimSize"
        r"|out of vocabulary|is out of range for the embedding",
        "The tokenizer has more ids than the embedding has rows, or an end token is beyond them.",
        "audit doctor MODEL",
        "model.resize_token_embeddings(len(tokenizer)), then save; or take the model's own "
        "tokenizer",
        ("token-beyond-embedding", "special-id-beyond-vocabulary"),
    ),
    Symptom(
        "an unknown architecture",
        r"does not recognize this architecture|are not supported for now|Unrecognized model in"
        r"|Model type .{0,80} not supported|unknown model architecture"
        r"|Unrecognized configuration class",
        "The library does not know the model type: it is older than the model, or the type is "
        "misspelt, or the code lies in the repository.",
        "audit MODEL --for all",
        "install a newer release of the library, or correct model_type",
        ("other-architecture", "engine-refuses"),
    ),
    Symptom(
        "code of the repository",
        r"trust_remote_code|contains custom code",
        "The repository has code of its own, which the loader runs only with "
        "trust_remote_code=True.",
        "audit MODEL",
        "read the code before you allow it; `code-not-there` means that it was not uploaded",
        ("custom-code", "code-not-there"),
    ),
    Symptom(
        "a pickle that is refused",
        r"Weights only load failed|Unsupported global|CVE-2025-32434|upgrade torch to at least",
        "The weights are a pickle, which may run code when it is loaded.",
        "audit MODEL",
        "use safetensors; load nothing that the report calls `unsafe`",
        ("unsafe", "copy-differs"),
    ),
    Symptom(
        "quantization",
        r"Unknown quantization|quantization_config|quant_method|\|\s*CONVERSION\b"
        r"|automatic conversion of the weights",
        "The declared quantization and the stored tensors do not agree, or the library could not "
        "convert them.",
        "audit MODEL",
        "correct quantization_config as the report says, or convert the model again",
        ("bad-quantization", "quantization-settings", "quantization-not-applied"),
    ),
    Symptom(
        "no tokenizer or processor",
        r"Can't load (?:the )?(?:tokenizer|image processor|feature extractor|processor)"
        r"|instantiate the backend tokenizer|Unrecognized (?:image )?processor"
        r"|preprocessor_config\.json|No tokenizer file",
        "The files of the tokenizer or of the processor are not beside the weights.",
        "audit doctor MODEL",
        "save them into the folder: tokenizer.save_pretrained(FOLDER)",
        ("processor-missing", "tokenizer-note"),
    ),
    Symptom(
        "no chat template",
        r"chat_template is not set|chat template",
        "The tokenizer has no chat template, or one that does not work.",
        "audit doctor MODEL",
        "upload the template of the model that was trained with it",
        ("chat-template-broken", "chat-turns-wrong"),
    ),
    Symptom(
        "no access",
        r"gated repo|401 Client Error|403 (?:Client Error|Forbidden)"
        r"|is not a valid model identifier",
        "The Hub refuses access, or has no such repository.",
        "audit MODEL",
        "accept the terms on the model's page and log in (hf auth login), or correct the id",
    ),
)  # fmt: skip


def symptoms_in(text: str) -> tuple[Symptom, ...]:
    """Return the symptoms in a pasted text, in the order of the table."""
    flat = " ".join(_ESCAPES.sub("", text[:_MOST_LETTERS]).split())
    return tuple(one for one in SYMPTOMS if re.search(one.pattern, flat, re.IGNORECASE))


def render(symptoms: Sequence[Symptom], *, width: int, color: bool) -> str:
    """Return each symptom in full: its meaning, the command, what to do, and kinds of findings."""
    return "\n".join(lines_text(_in_full(one, width), color=color) for one in symptoms)


def _in_full(symptom: Symptom, width: int) -> Iterator[StyledLine]:
    yield from wrapped(((symptom.name, "bold"),), width)
    yield from wrapped(symptom.meaning, width, 2)
    yield from wrapped(f"Look: {symptom.command}", width, 2)
    yield from wrapped(f"Then: {symptom.then}.", width, 2)
    if symptom.kinds:
        yield from wrapped(f"More: audit explain-finding {' '.join(symptom.kinds)}", width, 2)
