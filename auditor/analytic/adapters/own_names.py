"""The names that PEFT gives: to an adapter's own tensors, and to the modules around them."""

import re

BASE, ORIGINAL = ".base_layer.", ".original_module."
SAVED = re.compile(r"\.modules_to_save\.[^.]+\.")
_ROOT = re.compile(r"(?<![^.])base_model\.model\.")
# LoRA and variants, IA3, OFT, prompts; the adapter's name, such as `default`, may follow.
_OWN = re.compile(
    r"\.(lora_\w+|ia3_l|vera_lambda_[bd]|hada_[wt]\w*|lokr_[wt]\w*|oft_[Rrs]|boft_[RrSs]|hra_u|miss_block|ranknum"
    r"|adaption_prompt|adaption_gate|fourierft_spectrum|randlora_\w+|delora_\w+)(\.|$)"
    r"|(^|\.)prompt_encoder\.[^.]+\.embedding"
)


def is_own(name: str) -> bool:
    """Whether a tensor belongs to the adapter itself, not to the base model."""
    return _OWN.search(name) is not None


def module_of(name: str) -> str:
    """Return the module that a tensor of an adapter changes, or of which it stores a copy."""
    own = _OWN.search(name)
    return name[: own.start()] if own else name.rpartition(".")[0]


def name_in_model(name: str) -> str:
    """Return the name without the wrappers that PEFT adds."""
    name = _ROOT.sub("", name).replace(BASE, ".").replace(ORIGINAL, ".")
    return SAVED.sub(".", name)
