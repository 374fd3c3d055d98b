"""Classes in the code of model repositories that transformers has taken over under another name.

The files of both store the same names and shapes, as conversion_mapping.py of transformers states.
The configs differ in keys. A twin covers a config that states every key that shapes a tensor and
no option that the class of transformers lacks; the code itself is never run.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from auditor.analytic import Config


class _Twin(NamedTuple):
    """The model type of transformers whose classes a repository's classes have become."""

    model_type: str
    classes: Mapping[str, str]  # class in auto_map -> class of transformers
    keys: Mapping[str, str]  # key that shapes tensors, always stated -> key of transformers
    fixed: Mapping[str, object]  # option -> its only value that is covered; None: absent
    multiples: Mapping[str, int] = MappingProxyType({})  # key -> what the code rounds it up to


def _same(names: str) -> dict[str, str]:
    return {name: name for name in names.split()}


# Model type in config.json -> the twin.
_TWINS: Mapping[str, _Twin] = MappingProxyType(
    {
        "new": _Twin(  # the code of Alibaba-NLP/new-impl
            model_type="gte",
            classes={
                "NewModel": "GteModel",
                "NewForMaskedLM": "GteForMaskedLM",
                "NewForSequenceClassification": "GteForSequenceClassification",
                "NewForTokenClassification": "GteForTokenClassification",
            },
            keys=_same(
                "vocab_size hidden_size num_hidden_layers num_attention_heads intermediate_size "
                "type_vocab_size"
            ),
            fixed={
                "layer_norm_type": "layer_norm",
                "pack_qkv": True,
                "position_embedding_type": "rope",
            },
        ),
        "nomic_bert": _Twin(  # the code of nomic-ai/nomic-bert-2048
            model_type="nomic_bert",
            classes={"NomicBertModel": "NomicBertModel"},
            keys={
                "n_embd": "hidden_size",
                "n_head": "num_attention_heads",
                "n_inner": "intermediate_size",
                "n_layer": "num_hidden_layers",
                **_same("type_vocab_size vocab_size"),
            },
            fixed={
                "activation_function": "swiglu",
                "mlp_fc1_bias": False,
                "mlp_fc2_bias": False,
                "num_experts": None,
                "num_heads_kv": None,
                "qkv_proj_bias": False,
                "rotary_emb_fraction": 1.0,
                "type_vocab_size": 2,
            },
            multiples={"n_inner": 256, "vocab_size": 64},
        ),
    }
)


def as_native_twin(config: Config, custom: str) -> Config | None:
    """Return the config that transformers' class reads for one of custom code, else None.

    `custom` is the name of the class in auto_map.
    """
    twin, values = _TWINS.get(config.model_type or ""), config.values
    if twin is None or custom.rpartition(".")[2] not in twin.classes:
        return None
    stated = {key: values.get(key) for key in twin.keys}
    sizes = {key: size for key, size in stated.items() if isinstance(size, int)}
    is_covered = (
        sizes.keys() == twin.keys.keys()
        and all(_equal(values.get(key), only) for key, only in twin.fixed.items())
        and all(sizes[key] % unit == 0 for key, unit in twin.multiples.items())
    )
    if not is_covered:
        return None
    native = {
        **values,
        **{key: sizes[custom_key] for custom_key, key in twin.keys.items()},
        "architectures": [twin.classes.get(name, name) for name in config.architectures],
        "model_type": twin.model_type,
    }
    return replace(config, values=MappingProxyType(native))


def _equal(value: object, only: object) -> bool:
    return type(value) is type(only) and value == only
