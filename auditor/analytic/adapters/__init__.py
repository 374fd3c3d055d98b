"""The adapters of peft: the tensors that adapter_config.json and the base model imply.

Names are those of the adapter's file: `base_model.model.`, the module's path in memory, and the
adapter's own tensor, `.lora_A.weight`.
"""

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from auditor.analytic.adapters import other_methods, structured
from auditor.analytic.adapters.base import AdaptedModel, base_model_forms
from auditor.analytic.adapters.lora import LowRankPair, adalora, lora, lora_formula
from auditor.analytic.adapters.older_names import older_names
from auditor.analytic.adapters.saved_modules import (
    IN_BASE,
    OUTSIDE_BASE,
    Wrapped,
    biases,
    paths_with_rows,
    replaced_names,
    saved_paths,
    tensors_of_saved_modules,
    tensors_over_base,
    token_rows,
)
from auditor.analytic.adapters.settings import (
    FILE,
    AdapterSettings,
    read_settings,
    unchecked_adapter,
)
from auditor.analytic.adapters.targets import Targets
from auditor.analytic.blocks import MAX_TENSORS
from auditor.analytic.expectation import (
    Expectation,
    ExpectedTensor,
    ModuleFormula,
    Symbol,
    Written,
    parameters_by_module,
)
from auditor.errors import CheckpointError
from auditor.messages import quoted

__all__ = [
    "FILE",
    "AdaptedModel",
    "AdapterSettings",
    "base_model_forms",
    "expect_adapter",
    "is_prompt",
    "read_settings",
    "replaced_names",
    "require_known",
    "shapes_of_saved_modules",
]

_PROMPTS = MappingProxyType(
    {
        "PROMPT_TUNING": other_methods.prompt_tuning,
        "P_TUNING": other_methods.prompt_tuning,
        "PREFIX_TUNING": other_methods.prefix_tuning,
        "MULTITASK_PROMPT_TUNING": other_methods.multitask_prompt_tuning,
    }
)
_LORAS = MappingProxyType({"LORA": lora, "ADALORA": adalora})
_LAYERS = MappingProxyType(
    {
        "IA3": other_methods.ia3,
        "LOHA": other_methods.loha,
        "VERA": other_methods.vera,
        "FOURIERFT": other_methods.fourier_ft,
        "LN_TUNING": other_methods.ln_tuning,
        "TRAINABLE_TOKENS": other_methods.trainable_tokens,
        "BOFT": structured.boft,
        "OFT": structured.oft,
        "LOKR": structured.lokr,
        "HRA": structured.hra,
        "RANDLORA": structured.randlora,
        "MISS": structured.miss,
    }
)
# Method -> the class of peft that implements it.
_CLASSES = MappingProxyType(
    {
        "LORA": "LoraModel",
        "ADALORA": "AdaLoraModel",
        "IA3": "IA3Model",
        "LOHA": "LoHaModel",
        "VERA": "VeraModel",
        "FOURIERFT": "FourierFTModel",
        "LN_TUNING": "LNTuningModel",
        "TRAINABLE_TOKENS": "TrainableTokensModel",
        "BOFT": "BOFTModel",
        "OFT": "OFTModel",
        "LOKR": "LoKrModel",
        "HRA": "HRAModel",
        "RANDLORA": "RandLoraModel",
        "MISS": "MissModel",
        "PROMPT_TUNING": "PromptEmbedding",
        "P_TUNING": "PromptEncoder",
        "PREFIX_TUNING": "PrefixEncoder",
        "MULTITASK_PROMPT_TUNING": "MultitaskPromptEmbedding",
    }
)


class _Parts(NamedTuple):
    """The expected tensors of an adapter's file: the method's own, and tensors of the base."""

    own: tuple[ExpectedTensor, ...]
    of_base: tuple[ExpectedTensor, ...]
    pairs: tuple[LowRankPair, ...] = ()
    rank: int = 0


def require_known(settings: AdapterSettings) -> None:
    """Raise SourceError if this package cannot derive the tensors of the adapter's method."""
    if settings.method not in _CLASSES:
        methods = ", ".join(sorted(_CLASSES))
        raise unchecked_adapter(f"peft_type is {quoted(settings.method)}; known are {methods}")


def is_prompt(settings: AdapterSettings) -> bool:
    """Return whether the adapter is a learned prompt: its shapes follow from the settings alone."""
    return settings.method in _PROMPTS


def expect_adapter(
    settings: AdapterSettings, base: AdaptedModel, stored: Collection[str] = ()
) -> Expectation:
    """Return every tensor of the adapter's file for this base, required or optional.

    Tensors of the base are expected if they are among the `stored` names: peft loads them too.
    Raise CheckpointError if the settings fit no module of the base, SourceError if they have values
    that this package does not support.
    """
    require_known(settings)
    parts = _parts(settings, base, stored)
    older = older_names(settings, base, stored)
    by_name = {older.get(each.name, each.name): each for each in (*parts.of_base, *parts.own)}
    tensors = tuple(each._replace(name=name) for name, each in by_name.items())
    if len(tensors) > MAX_TENSORS:
        raise CheckpointError(f"the settings imply {len(tensors):,} tensors; that is too many")
    counts = parameters_by_module(tensors)
    modules = {prefix: ModuleFormula(count, str(count)) for prefix, count in counts.items()}
    total = modules[""].parameters
    text, legend = _formula(parts, total)
    modules[""] = ModuleFormula(total, text)
    return Expectation(
        target=f"{_CLASSES[settings.method]} of {base.expectation.target}",
        model_type=base.expectation.model_type,
        prefix="",
        by=base.expectation.by,
        library=base.expectation.library,
        listed=Written(tensors=tensors, modules=MappingProxyType(modules)),
        parameters=total,
        formula=text,
        legend=legend,
    )


def shapes_of_saved_modules(
    settings: AdapterSettings, base: AdaptedModel
) -> Mapping[str, tuple[int, ...]]:
    """Return the tensor shapes, by name, of modules that the adapter stores completely."""
    prefix = OUTSIDE_BASE if is_prompt(settings) else IN_BASE
    return {
        tensor.name: tensor.shape
        for tensor in tensors_of_saved_modules(base, saved_paths(settings, base), prefix)
    }


def _parts(settings: AdapterSettings, base: AdaptedModel, stored: Collection[str]) -> _Parts:
    saved = saved_paths(settings, base)
    if is_prompt(settings):
        own = tuple(_PROMPTS[settings.method](settings))
        over_base = tensors_over_base(base, Wrapped(), OUTSIDE_BASE, stored)
        return _Parts(own, (*over_base, *tensors_of_saved_modules(base, saved, OUTSIDE_BASE)))
    of_saved_modules = tuple(tensors_of_saved_modules(base, saved, IN_BASE))
    if settings.method not in _LORAS:
        own = tuple(_LAYERS[settings.method](settings, base))
        wrapped = Wrapped(frozenset(Targets(settings, base).chosen), saved)
        over_base = tensors_over_base(base, wrapped, IN_BASE, stored)
        return _Parts(own, (*over_base, *of_saved_modules))
    low_rank = _LORAS[settings.method](settings, base)
    wrapped = Wrapped(low_rank.targeted, saved, paths_with_rows(settings, base))
    of_base = (
        *tensors_over_base(base, wrapped, IN_BASE, stored),
        *biases(settings, base, low_rank.targeted, saved),
        *of_saved_modules,
    )
    own = (*low_rank.tensors, *token_rows(settings, base, stored))
    rank = settings.rank("init_r" if settings.method == "ADALORA" else "r")
    return _Parts(own, of_base, low_rank.pairs, rank)


def _formula(parts: _Parts, total: int) -> tuple[str, tuple[Symbol, ...]]:
    """Return the total's formula and legend: `r*(...)` for low-rank pairs, plus other elements."""
    text = lora_formula(parts.pairs, parts.rank)
    if text is None:
        return str(total), ()
    others = total - sum(pair.rank * (pair.inputs + pair.outputs) for pair in parts.pairs)
    legend = (Symbol(letter="r", key="r", value=parts.rank, default=False),)
    formula = f"{text} + {others}" if others else text
    return formula, legend if "r" in text else ()
