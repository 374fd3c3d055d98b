"""Weight files under other names than the usual, which a config gives. Pure.

`transformers_weights` of config.json is the file that transformers loads, whatever else is there.
AutoGPTQ loads the base name that its own config gives (`model_file_base_name`), and else
`gptq_model-4bit-128g` for 4 bits in groups of 128, as GPTQModel does. The names are a stranger's:
a base name is that of a file in the same folder, never a path.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from auditor.checkpoint.filenames import FoundWeights
from auditor.checkpoint.snapshot import TextFile
from auditor.containers.bounded_json import parse_object
from auditor.containers.index import shard_fault
from auditor.errors import CheckpointError

_NAMED = "transformers_weights"
_SAFE = (".safetensors", ".safetensors.index.json")  # what transformers takes there
_BASENAMES = ("model_file_base_name", "model_basename")
_ENDINGS = (".safetensors", ".bin", ".pt")  # in the order in which they are looked for
_INDEX = ".index.json"
_LONGEST = 200  # characters of a base name


def named_weights(config: TextFile | None, names: Collection[str]) -> FoundWeights | None:
    """The file that transformers would load by the config's own word, where it is there.

    The config stands in its own folder, and names files from there.
    """
    if config is None or _NAMED.encode() not in config.content:
        return None
    name = _values(config).get(_NAMED)
    if not isinstance(name, str) or not name.endswith(_SAFE) or shard_fault(name):
        return None
    path = f"{config.name[: config.name.rfind('/') + 1]}{name}"
    if path not in names:
        return None
    return FoundWeights(index=path) if path.endswith(_INDEX) else FoundWeights(weights=path)


def based_weights(config: TextFile, names: Collection[str]) -> FoundWeights | None:
    """The file whose base name a config of AutoGPTQ gives, or implies, where it is there."""
    for base in _bases(_values(config)):
        for ending in _ENDINGS:
            if f"{base}{ending}{_INDEX}" in names:
                return FoundWeights(index=f"{base}{ending}{_INDEX}")
            if f"{base}{ending}" in names:
                return FoundWeights(weights=f"{base}{ending}")
    return None


def _bases(values: Mapping[str, Any]) -> Iterator[str]:
    inner = values.get("quantization_config")
    settings = inner if isinstance(inner, Mapping) else values
    for key in _BASENAMES:
        base = settings.get(key)
        if isinstance(base, str) and 0 < len(base) <= _LONGEST and not ({"/", "\\"} & set(base)):
            yield base
            for ending in _ENDINGS:  # some write the whole name
                if base.endswith(ending):
                    yield base.removesuffix(ending)
    bits, group = settings.get("bits"), settings.get("group_size")
    if type(bits) is int and type(group) is int:
        yield f"gptq_model-{bits}bit-{group}g"


def _values(config: TextFile) -> Mapping[str, Any]:
    """Those of the file; none of one that is broken, which the audit says."""
    try:
        return parse_object(config.content, config.name)
    except CheckpointError:
        return {}
