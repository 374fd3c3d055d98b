"""The libraries that load a class other than the config's architectures[0].

The facts are from sentence-transformers 6.2: base/modules/transformer.py and its subclasses.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from auditor.analytic.auto_classes import AUTO_MODEL
from auditor.analytic.blocks import LayerNorm, Linear, Module, module
from auditor.analytic.config import Config
from auditor.analytic.expectation import Expectation
from auditor.analytic.family import Family
from auditor.analytic.tree_expectation import tree_expectation


class Loader(NamedTuple):
    """A library that loads a model, and the transformers class that it builds."""

    name: str  # "sentence-transformers"
    requested_class: str  # a class, or an auto class: "CLIPTextModel", "AutoModelForMaskedLM"
    unused_modules: tuple[str, ...] = ()  # modules of the base model that the loader does not use


# transformer_task of sentence_bert_config.json -> the auto class; "retrieval" is not listed: it
# builds the config's own class.
_TASKS: Mapping[str, str] = MappingProxyType(
    {
        "feature-extraction": AUTO_MODEL,
        "sequence-classification": "AutoModelForSequenceClassification",
        "text-generation": "AutoModelForCausalLM",
        "any-to-any": "AutoModelForMultimodalLM",
        "fill-mask": "AutoModelForMaskedLM",
    }
)
# Model type -> the encoder class, the only part that feature extraction loads.
_ENCODERS: Mapping[str, str] = MappingProxyType(
    {
        "blenderbot": "BlenderbotEncoder",
        "blenderbot-small": "BlenderbotSmallEncoder",
        "longt5": "LongT5EncoderModel",
        "m2m_100": "M2M100Encoder",
        "marian": "MarianEncoder",
        "moonshine": "MoonshineEncoder",
        "mt5": "MT5EncoderModel",
        "pegasus": "PegasusEncoder",
        "pegasus_x": "PegasusXEncoder",
        "prophetnet": "ProphetNetEncoder",
        "switch_transformers": "SwitchTransformersEncoderModel",
        "t5": "T5EncoderModel",
        "t5gemma": "T5GemmaEncoderModel",
        "t5gemma2": "T5Gemma2Encoder",
        "udop": "UdopEncoderModel",
        "umt5": "UMT5EncoderModel",
        "whisper": "WhisperEncoder",
    }
)
_DEFAULT_TASK = "feature-extraction"
_POOLER = "pooler"


def of_sentence_transformers(
    kind: str, model_type: str | None, settings: Mapping[str, object]
) -> Loader | None:
    """Return the loader of a Transformer module; None if the module builds architectures[0].

    `kind` is the module's class, `settings` its sentence_bert_config.json. The Pooling module pools
    token embeddings itself: the model's pooler is used only if the settings name its output.
    """
    default = "fill-mask" if kind == "MLMTransformer" else _DEFAULT_TASK
    task = settings.get("transformer_task", default)
    requested_class = _TASKS.get(task) if isinstance(task, str) else None
    if requested_class is None:
        return None
    if task == _DEFAULT_TASK:
        requested_class = _ENCODERS.get(model_type or "", requested_class)
    pooled = f"{_POOLER}_output" in str(settings.get("modality_config"))
    return Loader("sentence-transformers", requested_class, () if pooled else (_POOLER,))


def of_pipeline(kind: str) -> Loader:
    """Return the loader of a pipeline component whose class is from transformers."""
    return Loader("diffusers", kind)


# --- modules of sentence-transformers that have parameters ---------------------------------------

# Their class is in modules.json, not in config.json. Tensor names are those of the module's state
# dict: `linear` of a Dense, `norm` of a LayerNorm.
_MODEL_TYPE = "sentence-transformers"

_FAMILY = Family(
    model_type=_MODEL_TYPE,
    prefix="",
    base="Dense",
    own=MappingProxyType({"bias": True}),
    letters=MappingProxyType({"in_features": "I", "out_features": "O", "dimension": "D"}),
)


def _dense(c: Config) -> Module:
    inputs, outputs = c.dim("in_features"), c.dim("out_features")
    return module(linear=Linear(inputs, outputs, bias=c.flag("bias")))


_BUILDERS: Mapping[str, Callable[[Config], Module]] = MappingProxyType(
    {"Dense": _dense, "LayerNorm": lambda c: module(norm=LayerNorm(c.dim("dimension")))}
)
MODULES = tuple(_BUILDERS)


def expect_module(config: Config, kind: str) -> Expectation:
    """Return the Expectation that a config implies for a module of class `kind` in MODULES."""
    completed = config.of(_FAMILY)
    tree = _BUILDERS[kind](completed)
    return tree_expectation(tree, kind, model_type=_MODEL_TYPE, defaults=completed.defaulted)
