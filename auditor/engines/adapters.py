"""Verdicts of PEFT and vLLM on an adapter: the modules that they apply, and why not the others.

vLLM's rules are those of its lora/peft_helper.py, lora_model.py and model_manager.py (0.33). Which
modules of an architecture it replaces stands in `vllm.lora.json`, recorded by `make engines` from
vLLM's own code. PEFT (0.21) compares names and shapes with those that settings and base imply.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Raw, Struct, field
from msgspec.json import decode

from auditor.bounded.json_text import is_identical
from auditor.engines.knowledge import Knowledge
from auditor.engines.results import EngineVerdict
from auditor.messages import described, listed, quoted

_FILE = Path(__file__).parents[1] / "data" / "engines" / "vllm.lora.json"
_MOST_RANK = 16  # max_lora_rank of LoRAConfig
_BASE = "base_model.model."
_HEADS = ("score", "classifier")
_UNSUPPORTED = (
    *("use_dora", "lora_bias", "alora_invocation_tokens", "layer_replication"),
    *("use_bdlora", "use_qalora"),
)
_INITS = frozenset({"gaussian", "eva", "orthogonal", "mica", "lora_ga"})
_OF_BASE = (".embed_tokens.base_layer.weight", ".lm_head.base_layer.weight")
_NUMBER = re.compile(r"(?<![^.])[0-9]+(?![^.])")
_LAYER = re.compile(r"\.(?:layers|h|blocks)\.([0-9]{1,6})\.")
_PART = re.compile(r"(?P<module>.*)\.(?:lora_(?P<side>[AB])\.weight|lora_embedding_(?P<e>[AB]))")
_OWN_PARTS = re.compile(r"\.(?:base_layer|lora_B)$")  # between a module and its bias
_MOST_SHOWN = 3

Shapes = Mapping[str, tuple[int, ...] | None]


class AdaptedModules(Struct, frozen=True):
    """The modules that LoRA layers of vLLM replace in the models of one architecture."""

    class_: str = field(name="class", default="")
    error: str = ""
    language: str = ""  # the prefix of the language model in a multimodal one
    supported: frozenset[str] = frozenset()  # last parts of names
    replaced: frozenset[str] = frozenset()  # kinds of modules; a number is a star
    packed: Mapping[str, tuple[str, ...]] = {}  # a module of vLLM -> those that it joins
    experts: str = ""  # "each": one adapter an expert; "fused": one for all
    expert_names: tuple[str, ...] = ()
    rules: Mapping[str, Mapping[str, str]] = {}  # of names, in vLLM's order
    skips: tuple[str, ...] = ()
    pooling: bool = False

    def renamed(self, name: str) -> str:
        """Return vLLM's name of an adapter's tensor, without the prefix of PEFT."""
        name = name.replace(_BASE, "") if name.startswith(_BASE) else name
        for old, new in self.rules.get("substr", {}).items():
            name = name.replace(old, new, 1)
        for old, new in self.rules.get("prefix", {}).items():
            name = name.replace(old, new, 1) if name.startswith(old) else name
        for old, new in self.rules.get("suffix", {}).items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        return name

    def reads(self, name: str) -> bool:
        """Return whether vLLM looks at an adapter's tensor at all."""
        bare = name.removeprefix(_BASE)
        is_skipped = any(f".{one}" in bare or bare.startswith(one) for one in self.skips)
        return not is_skipped and not name.endswith(_OF_BASE)

    def is_expected(self, module: str) -> bool:
        """Return whether the last part of a name is one that vLLM accepts in an adapter."""
        last = module.rpartition(".")[2]
        _, dot, after = module.partition(".experts")
        if dot:
            named = re.fullmatch(r"\.[0-9]+\.(\w+)", after)
            is_one = named is not None and named[1] in self.expert_names
            is_whole = not after and "experts" in self.supported
            return is_whole or (self.experts == "each" and is_one)
        return last in self._parts

    @property
    def _parts(self) -> frozenset[str]:
        joined = self.supported & self.packed.keys()
        return (self.supported - joined).union(*(self.packed[one] for one in joined))

    def applies(self, module: str) -> bool:
        """Return whether vLLM has a layer that takes this module's pair."""
        forms = [module]
        if self.language and module.startswith(("model.", "lm_head")):  # of a text model
            start = f"{self.language.rstrip('.')}."
            forms += [start + module, start + module.removeprefix("model.")]
        return any(_NUMBER.sub("*", self._joined(one)) in self.replaced for one in forms)

    def _joined(self, module: str) -> str:
        before, dot, _ = module.partition(".experts.")
        if dot and self.experts == "each":
            return f"{before}.experts"
        path, _, last = module.rpartition(".")
        whole = next((one for one, parts in self.packed.items() if last in parts), last)
        return f"{path}.{whole}" if path else whole


class Adapter(Struct, frozen=True, kw_only=True):
    """An adapter as an engine finds it."""

    settings: Mapping[str, Any]
    stored: Shapes
    architecture: str | None  # of the base; None if its config was not read
    layers: int | None  # of the base's language model
    expected: frozenset[str] = frozenset()  # names that PEFT expects and finds
    unread: str = ""  # why the audit does not know what PEFT expects
    refused: str = ""  # why PEFT raises
    # Stored and expected shapes of tensors where both differ.
    misfits: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = {}
    missing: int = 0  # tensors that PEFT warns of


def judge_adapter(known: Knowledge, adapter: Adapter) -> EngineVerdict:
    """Return the verdict of PEFT or vLLM on an adapter."""
    answer = _by_peft(adapter) if known.engine == "peft" else _by_vllm(adapter)
    return EngineVerdict(
        engine=known.engine, version=known.version, date=known.date, **answer._asdict()
    )


class AdapterOutcome(NamedTuple):
    """Whether an engine loads an adapter, why not or what it leaves out, and the modules."""

    loads: bool | None
    reasons: tuple[str, ...]
    applied: int | None = None
    of: int | None = None


def _pairs(names: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the modules whose tensors are complete, and all modules with tensors.

    A bias or a saved weight is complete alone.
    """
    sides: dict[str, set[str]] = {}
    for name in sorted(names, key=lambda name: ".lora_" not in name):
        if part := _PART.fullmatch(name):
            sides.setdefault(part["module"], set()).add(part["side"] or part["e"])
        elif name.startswith(_BASE):
            module = _OWN_PARTS.sub("", name.rpartition(".")[0])
            sides.setdefault(module, {"A", "B"})
    return frozenset(one for one, has in sides.items() if len(has) == 2), frozenset(sides)  # noqa: PLR2004


def _by_peft(adapter: Adapter) -> AdapterOutcome:
    if adapter.refused:
        return AdapterOutcome(loads=False, reasons=(adapter.refused,))
    if adapter.unread:
        return AdapterOutcome(loads=None, reasons=(adapter.unread,))
    applied, _ = _pairs(adapter.expected)
    _, of = _pairs(adapter.stored)
    reasons = [] if not of else [_count(len(applied), len(of))]
    if dropped := sorted(adapter.stored.keys() - adapter.expected):
        reasons.append(f"it drops {_some(dropped)} in silence: settings and base imply other names")
    if adapter.missing:
        reasons.append(f"it warns of {adapter.missing:,} missing tensors, which are not trained")
    return AdapterOutcome(loads=True, reasons=tuple(reasons), applied=len(applied), of=len(of))


def _count(applied: int, of: int) -> str:
    whole = "the base model is unchanged: " if of and not applied else ""
    return f"{whole}it applies {applied:,} of {of:,} modules"


def _some(names: list[str]) -> str:
    more = len(names) - _MOST_SHOWN
    return listed(names[:_MOST_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


# --- vLLM ---------------------------------------------------------------------------------------


def _by_vllm(adapter: Adapter) -> AdapterOutcome:
    if refusals := tuple(_refused_settings(adapter.settings)):
        return AdapterOutcome(loads=False, reasons=refusals)
    if adapter.architecture is None:
        return AdapterOutcome(loads=None, reasons=("the base's config was not read",))
    model = modules_of(adapter.architecture)
    if model is None or (why := _untried(adapter, model)):
        why = "not tried with an adapter" if model is None else why
        return AdapterOutcome(loads=None, reasons=(f"{quoted(adapter.architecture)}: {why}",))
    modules: dict[str, str] = {}
    for name in filter(model.reads, adapter.stored):
        part = _PART.fullmatch(model.renamed(name))
        if part is None:
            return AdapterOutcome(
                loads=False,
                reasons=(f"{quoted(name)} is not a name of a LoRA tensor that it knows",),
            )
        module = part["module"].removeprefix(_BASE)
        if "base_layer" not in name and not model.is_expected(module):
            return AdapterOutcome(
                loads=False,
                reasons=(f"it accepts no adapter of {quoted(module)} in {model.class_}",),
            )
        modules[name] = module
    return _applied(adapter, model, modules)


def _untried(adapter: Adapter, model: AdaptedModules) -> str:
    """Return what was not tried with adapters of this architecture; "" if nothing is open."""
    if model.error:
        return f"not tried: {model.error}"
    if model.pooling or not {"renaming", "regex"}.isdisjoint(model.rules):
        return "not tried with an adapter"
    if adapter.settings.get("modules_to_save"):
        return "adapters with a head of their own were not tried"
    is_stacked = model.experts == "fused" and any(".experts" in name for name in adapter.stored)
    return "adapters of fused experts were not tried" if is_stacked else ""


def _applied(adapter: Adapter, model: AdaptedModules, modules: Mapping[str, str]) -> AdapterOutcome:
    pairs, found = _pairs(
        f"{module}{name[name.rindex('.lora_') :]}" for name, module in modules.items()
    )
    lone = {module for module in found - pairs if model.applies(module)}
    for name, module in modules.items():
        if module in lone and "_A" in name[name.rindex(".lora_") :]:
            return AdapterOutcome(loads=False, reasons=(f"{quoted(module)} has no lora_B",))
    fitting = {module for module in pairs if model.applies(module)}
    if adapter.layers is None and any(map(_LAYER.search, fitting)):
        return AdapterOutcome(loads=None, reasons=("the number of the base's layers is not known",))
    fitting = {one for one in fitting if _is_layer(one, adapter.layers)}
    stacked = [one for one in fitting if one.endswith(".experts")]
    if stacked:
        return AdapterOutcome(
            loads=False, reasons=(f"{quoted(stacked[0])} is an adapter of stacked experts",)
        )
    reasons = [_count(len(fitting), len(found))]
    if ignored := sorted(found - fitting):
        reasons.append(f"it ignores {_some(ignored)}: {model.class_} has no such layer")
    larger, unclear = _misfits(adapter)
    if larger:
        return AdapterOutcome(
            loads=False, reasons=(f"{_some(larger)}: larger than the base's layer",)
        )
    if unclear:
        return AdapterOutcome(loads=None, reasons=(*reasons, f"{_some(unclear)}: not tried"))
    return AdapterOutcome(loads=True, reasons=tuple(reasons), applied=len(fitting), of=len(found))


def _is_layer(module: str, count: int | None) -> bool:
    number = _LAYER.search(f".{module}")
    return number is None or (count is not None and int(number[1]) < count)


def _misfits(adapter: Adapter) -> tuple[list[str], list[str]]:
    """Return the matrices that do not fit into vLLM's layers, and those that it may cut.

    A stored rank below the limit fits whatever the settings say, and so does a smaller layer.
    """
    larger, unclear = [], []
    for name, (stored, expected) in adapter.misfits.items():
        axes = {"A": (1, 0), "B": (0, 1)}.get(name.removesuffix(".weight")[-1:])
        if axes is None or len(stored) != len(expected) or len(stored) != 2:  # noqa: PLR2004
            unclear.append(name)
        elif stored[axes[0]] > expected[axes[0]]:
            larger.append(name)
        elif stored[axes[1]] > _MOST_RANK:
            unclear.append(name)
    return larger, unclear


def _refused_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield why vLLM refuses the settings of an adapter, at the defaults of its LoRAConfig."""
    lacking = [key for key in ("r", "lora_alpha", "target_modules") if key not in settings]
    if lacking:
        yield f"adapter_config.json lacks {listed(lacking)}"
        return
    ranks = [settings["r"]]
    pattern = settings.get("rank_pattern")
    ranks += pattern.values() if isinstance(pattern, Mapping) else ()
    most = max((one for one in ranks if type(one) is int), default=0)
    if most > _MOST_RANK:
        yield f"the rank {most} is above {_MOST_RANK}: start it with --max-lora-rank {most}"
    if not is_identical(settings.get("bias", "none"), "none"):
        yield f"bias is {described(settings['bias'])}, expected none"
    saved = settings.get("modules_to_save")
    if others := [one for one in saved if one not in _HEADS] if isinstance(saved, list) else []:
        yield f"modules_to_save is {described(others)}: it takes score and classifier alone"
    yield from (f"it does not support {key}" for key in _UNSUPPORTED if settings.get(key))
    init = settings.get("init_lora_weights", True)
    if isinstance(init, str) and init.lower() not in _INITS:
        yield f"init_lora_weights is {quoted(init)}: save it as a plain LoRA"


@cache
def _records() -> Mapping[str, Raw]:
    entries: Mapping[str, Raw] = decode(_FILE.read_bytes(), type=_Recorded).entries
    return entries


class _Recorded(Struct, frozen=True):
    entries: Mapping[str, Raw]


def modules_of(architecture: str) -> AdaptedModules | None:
    """Return what was recorded of an architecture; None if it was not tried."""
    raw = _records().get(architecture)
    return None if raw is None else decode(raw, type=AdaptedModules)
