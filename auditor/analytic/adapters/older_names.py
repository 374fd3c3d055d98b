"""The names of modules before transformers renamed them, as adapters of older versions use them.

PEFT translates the names of LoRA's tensors if transformers registers the renames for a model type,
but not if transformers registers them for a class. PEFT translates no other tensors or settings.
"""

from collections.abc import Collection, Mapping

from auditor.analytic.adapters.base import AdaptedModel
from auditor.analytic.adapters.saved_modules import IN_BASE
from auditor.analytic.adapters.settings import AdapterSettings

# The model types with closed forms whose renames transformers registers for the model type.
_TRANSLATED = frozenset({"gemma3", "granitemoe", "llava", "mixtral", "paligemma", "swin"})
_OWN = ".lora_"


def older_names(
    settings: AdapterSettings, base: AdaptedModel, stored: Collection[str]
) -> Mapping[str, str]:
    """Return a mapping from current tensor names to the older names that PEFT translates."""
    if settings.method != "LORA" or base.expectation.model_type not in _TRANSLATED:
        return {}
    names = [name for name in stored if name.startswith(IN_BASE) and _OWN in name]
    paths = [name.removeprefix(IN_BASE).partition(_OWN)[0] for name in names]
    in_memory = base.expectation.loading.looked_for([f"{path}.weight" for path in paths])
    return {
        f"{IN_BASE}{new.removesuffix('.weight')}{name.removeprefix(IN_BASE + path)}": name
        for name, path, new in zip(names, paths, in_memory, strict=True)
        if path not in base.parts
    }
