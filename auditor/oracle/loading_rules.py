"""Read the loading rules of a model from transformers, as data for `auditor.analytic.loading`.

The rules are the renames, conversions, ties and unreported names of from_pretrained for this model
and its sub-models, and the names and shapes in memory.
"""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from auditor.analytic.loading import Loading, Memory, Operation, Rule, starts_of_rule

Shape = tuple[int, ...]

# Renames that this code knows; a later transformers may have others.
_PAIRED = "GroupWeightRename"
_SHIFTED = "Inkling2IndexOffsetWeightRename"
_HALVED = "LayerPairCollapse"
_KNOWN = frozenset(
    {"WeightRenaming", "PrefixChange", "WeightConverter", _PAIRED, _SHIFTED, _HALVED}
)
_HALVES = (
    ("mixer", "self_attn", "mlp"),
    ("attn_alpha", "lambda_1", "lambda_1"),
    ("mlp_alpha", "lambda_2", "lambda_2"),
)


def untied_shapes(model: Any) -> dict[str, Shape]:
    """Return the shapes of a model's tensors in memory, by name, before tensors are tied."""
    return {name: tuple(value.shape) for name, value in model.state_dict().items()}


def loading_of_model(model: Any, shapes: Mapping[str, Shape], on_disk: Iterator[str]) -> Loading:
    """Return the loading rules of a model; `shapes` is the result of `untied_shapes`.

    `on_disk` are the names that save_pretrained writes.
    """
    from transformers.conversion_mapping import (  # noqa: PLC0415 - as in the package
        get_checkpoint_conversion_mapping,
        get_model_conversion_mapping,
    )

    transforms = get_model_conversion_mapping(model, add_legacy=False)
    legacy: list[Any] = get_checkpoint_conversion_mapping("legacy") or []  # type: ignore[no-untyped-call]
    rules = [rule_of(transform, model.config) for transform in transforms]
    unmissed = tuple(sorted(model._keys_to_ignore_on_load_missing or ()))  # noqa: SLF001 - likewise
    unexpected = model._keys_to_ignore_on_load_unexpected or ()  # noqa: SLF001 - likewise
    return Loading(
        renames=tuple(rule for rule in rules if not rule.operations),
        legacy=tuple(rule_of(transform, model.config) for transform in legacy),
        converters=tuple(rule for rule in rules if rule.operations),
        silent=tuple(sorted(unexpected)),
        buffers=tuple(_buffers(model)),
        unmissed=unmissed,
        optional_buffers=(".",),  # for each buffer of the model
        not_renamed=frozenset(_unrenamed(model, shapes, on_disk, [*transforms, *legacy])),
        memory=Memory(
            shapes=shapes,
            ties=tuple(model.all_tied_weights_keys.items()),
            unset=frozenset(_unset(model) if rules else ()),
        ),
        reports=_KNOWN.issuperset(type(one).__name__ for one in (*transforms, *legacy))
        and _returns_reports(type(model)),
    )


def _returns_reports(model_class: Any) -> bool:
    """Return whether from_pretrained reads output_loading_info: a class's own may raise at it."""
    code = inspect.unwrap(model_class.from_pretrained.__func__).__code__
    return "output_loading_info" in code.co_consts


def rule_of(transform: Any, config: Any) -> Rule:
    operations = getattr(transform, "operations", ())
    halved = type(transform).__name__ == _HALVED  # a rule that ignores prefixes
    scope, prefix = transform.scope_prefix, transform.base_model_prefix or ""
    return Rule(
        sources=(transform.pattern.pattern,) if halved else tuple(transform.source_patterns),
        targets=tuple(transform.target_patterns),
        prefixes=("",) if halved else starts_of_rule(scope, prefix),
        operations=tuple(_operation(operation, config) for operation in operations),
        paired=type(transform).__name__ == _PAIRED,
        offset=getattr(transform, "offset", 0),
        halves=_HALVES if halved else (),
    )


def _operation(operation: Any, config: Any) -> Operation:
    name, of = type(operation).__name__, vars(operation)
    axes: tuple[int, ...] = (of.get("dim", 0),)
    number: int | None = None
    match name:
        case "Transpose":
            axes = (of["dim0"], of["dim1"])
            number = 1 if of["check_dims"] else None
        case "ErnieFuseAndSplitTextVisionExperts":
            axes = (of["stack_dim"], of["concat_dim"])
        case "PermuteForRope":
            part = getattr(config, of["subconfig_key"] or "", config)
            number = getattr(part, "num_attention_heads", 1)
        case "Chunk":
            key = of["num_shards_attribute"]
            number = getattr(config.get_text_config(), key) if key else None
        case "Inkling2UnpadVocab":
            number = config.get_text_config().unpadded_vocab_size
    only = of.get("permute_layer_names")
    return Operation(name, axes, number, tuple(only) if only else None)


def _buffers(model: Any) -> Iterator[str]:
    """Yield patterns of names that loading never reports as unexpected: the model's buffers."""
    names = tuple(name for name, _ in model.named_buffers())
    if any(name.endswith("rotary_emb.inv_freq") for name in names):
        yield r"rotary_emb\.inv_freq"
    if any(name.endswith("position_ids") for name in names):
        yield r"(^|\.)position_ids$"


def _unrenamed(
    model: Any, shapes: Mapping[str, Shape], on_disk: Iterator[str], transforms: list[Any]
) -> Iterator[str]:
    """Yield names on disk that are also names in memory, and that the renames would change."""
    from transformers.core_model_loading import (  # noqa: PLC0415 - as in the package
        WeightConverter,
        rename_source_key,
    )

    converters = [each for each in transforms if isinstance(each, WeightConverter)]
    renamings = [each for each in transforms if not isinstance(each, WeightConverter)]
    prefix, there = model.base_model_prefix, dict(shapes)
    for name in on_disk if transforms else ():
        renamed, _ = rename_source_key(name, renamings, converters, prefix, there)
        if renamed not in shapes and name in shapes:
            yield name


def _unset(model: Any) -> Iterator[str]:
    for path, module in model.named_modules():
        for table in (module._parameters, module._buffers):  # noqa: SLF001 - None is in no other
            names = (name for name, value in table.items() if value is None)
            yield from (f"{path}.{name}" if path else name for name in names)
