"""Keys that no class of the model type reads, and that are one slip from one that it does.

A slip is a letter too many, too few, another one, or two exchanged.
"""

from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from typing import Any

from auditor.analytic.config_classes import ConfigClass, library
from auditor.analytic.config_classes.declarations import of_model_type, of_name
from auditor.reconciler.findings import Finding, UnknownConfigKey
from auditor.reconciler.repository_rules.repository_case import RepositoryCase, value_text

_TEXT = "text_config"
# What every config class takes beside its fields.
_TAKEN = frozenset(
    (
        "torch_dtype",
        "num_labels",
        "rope_theta",
        "rope_scaling",
        "rope_parameters",
        "partial_rotary_factor",
        "quantization_config",
        "auto_map",
        "transformers_version",
        "attn_implementation",
        "use_cache",
        "use_return_dict",
        "output_attentions",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "sep_token_id",
        "decoder_start_token_id",
        "tie_word_embeddings",
        "add_cross_attention",
        "layer_types",
        "sliding_window",
        "use_sliding_window",
        "max_window_layers",
    )
)
# Composite types whose config class takes the keys of its text from the top, as they are published.
FLAT = frozenset(("qwen2_vl", "qwen2_5_vl"))
# Unknown keys that are looked at: configs of the repository's own code have some dozens.
_MOST_UNKNOWN = 500


def key_findings(case: RepositoryCase) -> Iterator[Finding]:
    if case.kind is None or case.custom:
        return
    yield from _of(case, case.config, case.kind, "")
    for key, part in case.kind.parts.items():
        values = case.config.get(key)
        if isinstance(values, Mapping):
            stated = values.get("model_type", part.model_type)
            kind = of_name(part.class_name) if part.class_name else None
            kind = kind or (of_model_type(stated) if isinstance(stated, str) else None)
            if kind is not None:
                yield from _of(case, values, kind, f"{key}.")


def _of(
    case: RepositoryCase, values: Mapping[str, Any], kind: ConfigClass, path: str
) -> Iterator[Finding]:
    known = {*kind.fields, *kind.attribute_map, *kind.parts, *kind.read_only, *_TAKEN}
    fields = dict(kind.fields)
    if kind.model_type in FLAT and values.get(_TEXT) is None:
        text = of_name(kind.parts[_TEXT].class_name or "")
        fields |= text.fields if text else {}
        known |= fields.keys()
    known |= library().generation
    known |= {key.removeprefix("_") for key in known}  # _out_features is written as out_features
    unknown = (key for key in values if key not in known and not key.startswith("_"))
    for key in islice(unknown, _MOST_UNKNOWN):
        value = values[key]
        meant = near(key, known)
        if meant is None:
            continue
        field = fields.get(meant)
        stands = value_text(values.get(meant, field.default if field else None))
        yield UnknownConfigKey(
            says=(
                (case.config_file, path + key, value_text(value)),
                (case.config_file, path + meant, stands),
            ),
            reason=f"{path}{key} is {value_text(value)}, and no class of type {kind.model_type} "
            f"reads it ({library().short}); {path}{meant} stands at {stands}",
            fix=f"rename {path}{key} to {path}{meant}",
        )


_SHORTEST = 6  # letters; shorter names are one slip from many others


def near(name: str, known: Collection[str]) -> str | None:
    """The one known name that is a slip away; None: there is none, or the name is too short."""
    if len(name) < _SHORTEST or len(name) > 80:  # noqa: PLR2004 - no key is longer
        return None
    found = sorted(other for other in known if _one_slip(name, other))
    return found[0] if found else None


def _one_slip(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    if one == other or len(long) - len(short) > 1 or len(short) < _SHORTEST - 1:
        return False
    at = next((i for i, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    exchanged = short[at : at + 2] == long[at : at + 2][::-1] and short[at + 2 :] == long[at + 2 :]
    return exchanged or short[at + 1 :] == long[at + 1 :]
