"""Checkpoints of programs other than transformers, by the names and sizes that their files declare.

Sources: model2vec 0.10 (persistence.py, model.py), StaticEmbedding of sentence-transformers 6.2,
the drafts of EAGLE-3 as SpecForge writes and vLLM reads them, StableDiffusionSafetyChecker of
diffusers 0.42, mlx_lm 0.32 (tuner/utils.py), configs of mamba_ssm 2.2 and of LeRobot 0.4.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from auditor.analytic import Config, ExpectedTensor, Role, catalogue
from auditor.analytic.expectation import summed_expectation
from auditor.analytic.loading import Loading
from auditor.audit.expected import Implied, NotImplied
from auditor.errors import Reason, SourceError
from auditor.findings import ConfigContradiction, OfKeys
from auditor.messages import listed, named, quoted
from auditor.reconciler.reconcile import FamilyExpectations
from auditor.reconciler.repository_rules.repository_case import value_text
from auditor.tensors import StoredTensor

Shapes = Mapping[str, tuple[int, ...] | None]
STATIC = "StaticEmbedding"  # the module of sentence-transformers, which needs no config
_DRAFTS = ("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM")
_CHECKER = "StableDiffusionSafetyChecker"
# Class -> a note that names the program which reads its weights.
PROGRAMS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys((STATIC, "StaticModel"), "a static embedding, as model2vec writes it"),
        **dict.fromkeys(_DRAFTS, "a draft of EAGLE-3, for speculative decoding of a larger model"),
    }
)
_CONCEPTS, _SPECIAL = 17, 3  # of the safety checker


def implied_by_other_program(
    config: Config, module: str | None, tensors: Iterable[StoredTensor]
) -> Implied | NotImplied | None:
    """Return what a config of another program implies; None if no such program is known.

    `module` is the class of a module of sentence-transformers. Raise CheckpointError for a value
    that is missing or is not a size.
    """
    target = module or next(iter(config.architectures), "")
    shapes = {one.name: one.shape for one in tensors}
    if target in {STATIC, "StaticModel"}:
        return _implied(target, _static(shapes))
    if target in _DRAFTS:
        return _implied(target, _draft(config, shapes))
    if target == _CHECKER:
        return _implied(target, _checker(config))
    if program := _program_of(config.values):
        detail = f"{program}: its tensors are counted, not compared"
        return NotImplied(SourceError(Reason.UNKNOWN_ARCHITECTURE, detail))
    return None


def _program_of(values: Mapping[str, Any]) -> str:
    """Return a clause about the program of a config without a model type; "" if it is unknown."""
    if "model_type" in values or "architectures" in values:
        return ""
    policy = values.get("type")
    if isinstance(policy, str) and "input_features" in values and "output_features" in values:
        return f"the config is that of a policy of LeRobot of type {quoted(policy)}"
    if {"d_model", "n_layer", "ssm_cfg"} <= values.keys():
        return "the config is that of MambaLMHeadModel of the package mamba_ssm"
    return ""


def _implied(target: str, tensors: Iterable[ExpectedTensor]) -> Implied:
    expectation = summed_expectation(
        target,
        model_type="",
        prefix="",
        tensors=tuple(tensors),
        loading=Loading(legacy=()),
        by="closed-form",
    )
    return Implied(expectation, FamilyExpectations(declared=expectation, siblings=lambda: ()))


def _tensor(name: str, *shape: int, role: Role = Role.PARAMETER) -> ExpectedTensor:
    elements = 1
    for length in shape:
        elements *= length
    return ExpectedTensor(name, shape, elements, role)


def _static(shapes: Shapes) -> Iterator[ExpectedTensor]:
    """Yield the tensors of a static embedding; no config states its width or its rows.

    Rows are compared with the tokenizer by a rule of their own. model2vec may store a row for
    several tokens: `mapping` has a row's number and `weights` a factor for each token.
    """
    name = "embeddings" if "embeddings" in shapes else "embedding.weight"
    rows, width = (*(shapes.get(name) or ()), 0, 0)[:2]
    yield _tensor(name, rows, width)
    tokens = (shapes.get("mapping") or (rows,))[0]
    yield _tensor("mapping", tokens, role=Role.LEGACY)
    if "weights" in shapes:
        yield _tensor("weights", tokens)


def _draft(config: Config, shapes: Shapes) -> Iterator[ExpectedTensor]:
    """Yield the tensors of a draft: one layer, which reads embeddings beside hidden states.

    `fc` mixes the hidden states of three layers of the large model. A vocabulary that is shorter
    than the large model's needs `d2t`, the large model's id of each token.
    """
    completed = config.of(catalogue.family("llama"))
    size = completed.integer
    D, F, V, heads = map(
        size, ("hidden_size", "intermediate_size", "vocab_size", "num_attention_heads")
    )
    own = {
        key: config.values.get(key)
        for key in ("head_dim", "draft_vocab_size", "target_hidden_size")
    }
    numbers = {key: size(key) for key, value in own.items() if value is not None}
    head = numbers.get("head_dim", D // max(1, heads))
    drafted = numbers.get("draft_vocab_size", V)
    states = size("num_key_value_heads") * head
    layer = next(
        (one for one in ("midlayer.", "layers.0.") if f"{one}hidden_norm.weight" in shapes),
        "midlayer.",
    )
    yield _tensor("fc.weight", D, 3 * numbers.get("target_hidden_size", D))
    yield _tensor("norm.weight", D)
    yield _tensor("lm_head.weight", drafted, D)
    yield _tensor("embed_tokens.weight", V, D, role=Role.EXTRA)  # else those of the large model
    yield _tensor("d2t", drafted, role=Role.BUFFER if drafted < V else Role.LEGACY)
    yield _tensor("t2d", V, role=Role.LEGACY)
    for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm"):
        yield _tensor(f"{layer}{name}.weight", D)
    for name, outputs in (("q", heads * head), ("k", states), ("v", states)):
        yield _tensor(f"{layer}self_attn.{name}_proj.weight", outputs, 2 * D)
    yield _tensor(f"{layer}self_attn.o_proj.weight", D, heads * head)
    for name, (outputs, inputs) in {"gate": (F, D), "up": (F, D), "down": (D, F)}.items():
        yield _tensor(f"{layer}mlp.{name}_proj.weight", outputs, inputs)


def _checker(config: Config) -> Iterator[ExpectedTensor]:
    """Yield the tensors of the safety checker: CLIP's vision tower, and embeddings of concepts."""
    vision, width = config.values.get("vision_config"), config.values.get("projection_dim", 512)
    values = {**(vision if isinstance(vision, Mapping) else {}), "projection_dim": width}
    values["model_type"] = "clip_vision_model"
    tower = replace(config, values=MappingProxyType(values), completed=None)
    for one in catalogue.expect(tower, "CLIPVisionModelWithProjection").tensors:
        is_inside = one.name.startswith("vision_model.")
        yield one._replace(name=f"vision_model.{one.name}") if is_inside else one
    D = tower.integer("projection_dim")
    for name, count in (("concept", _CONCEPTS), ("special_care", _SPECIAL)):
        yield _tensor(f"{name}_embeds", count, D)
        yield _tensor(f"{name}_embeds_weights", count)


# --- files without a config that transformers reads ----------------------------------------------

_VECTORS = re.compile(r"<[^<>]+>|emb_params|clip_[gl]")
_MOST_VECTORS = 8  # tensors of one textual inversion


def textual_inversion(tensors: Iterable[StoredTensor]) -> str:
    """Return a sentence about a file of learned token embeddings; "" for any other file."""
    sizes: dict[str, tuple[int, int]] = {}
    for one in tensors:
        shape = one.shape or ()
        if (
            len(sizes) == _MOST_VECTORS
            or not _VECTORS.fullmatch(one.name)
            or len(shape) not in {1, 2}
        ):
            return ""
        sizes[one.name] = shape[0] if len(shape) > 1 else 1, shape[-1]
    parts = [f"{rows} x {width:,} ({named(name)})" for name, (rows, width) in sizes.items()]
    if not parts:
        return ""
    return (
        f"a textual inversion, embeddings of new tokens: {', '.join(parts)}. They are counted, not "
        "reconciled, because nothing declares their base"
    )


MLX_TYPES = frozenset(("lora", "dora", "full"))
_LEAVES = ("lora_a", "lora_b", "m")


def is_of_mlx(settings: Mapping[str, Any]) -> bool:
    """Return whether an adapter_config.json is that of mlx_lm."""
    return settings.get("fine_tune_type") in MLX_TYPES and "peft_type" not in settings


def mlx_faults(
    file: str, settings: Mapping[str, Any], tensors: Iterable[StoredTensor]
) -> Iterator[OfKeys]:
    """Yield the settings of an adapter with which load_adapters of mlx_lm raises."""
    values = settings.get("lora_parameters")
    parameters = values if isinstance(values, Mapping) else {}
    if settings["fine_tune_type"] == "full":
        return
    keys, rank, count = parameters.get("keys"), parameters.get("rank"), settings.get("num_layers")
    stated_keys = frozenset(map(str, keys)) if isinstance(keys, list) else None
    modules: dict[str, None] = {}
    layers: set[str] = set()
    ranks: set[int] = set()
    for one in tensors:
        path, _, leaf = one.name.rpartition(".")
        number, _, inner = path.partition(".layers.")[2].partition(".")
        layers.update({number} - {""})
        if stated_keys is not None and leaf in _LEAVES and not {inner, path} & stated_keys:
            modules[inner or path] = None
        if one.shape and len(one.shape) == 2 and leaf in _LEAVES[:2]:  # noqa: PLR2004 - a matrix
            ranks.add(one.shape[1 if leaf == "lora_a" else 0])
    if "scale" not in parameters:
        yield _fault(file, "scale", None, "mlx_lm needs it", "to the scale of the training")
    if modules:
        names = listed(list(modules))
        why = f"the file adapts {names}, which mlx_lm then refuses"
        yield _fault(file, "keys", keys, why, f"to {names}")
    if type(rank) is int and ranks and ranks != {rank}:
        stored = " and ".join(map(str, sorted(ranks)))
        yield _fault(file, "rank", rank, f"the file holds rank {stored}", f"to {stored}")
    if type(count) is int and 0 < count < len(layers):
        why = f"the file adapts {len(layers)} layers"
        says = ((file, "num_layers", value_text(count)),)
        fix = f"set num_layers to {len(layers)} or more"
        yield ConfigContradiction(says=says, reason=f"num_layers is {count}, and {why}", fix=fix)


def _fault(file: str, key: str, value: object, why: str, to: str) -> OfKeys:
    path, text = f"lora_parameters.{key}", value_text(value)
    reason = f"{path} is {'absent' if value is None else text}, and {why}"
    return ConfigContradiction(says=((file, path, text),), reason=reason, fix=f"set {path} {to}")
