"""Write auditor/data/config_relations.json: the relations of config keys that models need.

`{model type: {relation: error}}`: a model of the type is built and called with one relation broken,
and the error is the class that this raises. A relation without an entry was broken without an error
or was not tried. `auditor/analytic/config_classes/relations.py` lists the relations.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from auditor.analytic.config_classes.relations import RELATIONS, keys_of

PLACE = Path(__file__).resolve().parents[1] / "auditor" / "data" / "config_relations.json"
# A small value for each key that a config class has; sizes that belong together fit.
SMALL: Mapping[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "d_model": 32,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_attention_heads": 4,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
    "max_position_embeddings": 64,
    "num_experts": 8,
    "num_local_experts": 8,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 0,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "image_size": 16,
    "patch_size": 8,
    "num_channels": 3,
}


# Types that do not work with the small values may with these in addition, one set after another.
OTHERS: tuple[Mapping[str, Any], ...] = (
    {},
    {"num_key_value_heads": 4},
    {"head_dim": 8},
    {"hidden_size": 256, "head_dim": 64},
    {"hidden_size": 256, "head_dim": 64, "num_hidden_layers": 8},
    {"hidden_size": 512},
    {"vocab_size": 130_000},
)
MOST = 30_000_000  # parameters of a model that is called


def relations() -> dict[str, dict[str, list[str]]]:
    import transformers  # noqa: PLC0415 - seconds
    from transformers import CONFIG_MAPPING  # noqa: PLC0415 - likewise

    transformers.logging.set_verbosity_error()
    found: dict[str, dict[str, list[str]]] = {}
    for model_type in sorted(sys.argv[1:] or CONFIG_MAPPING):
        errors = dict(errors_of(model_type))
        if errors:
            found[model_type] = errors
            print(model_type, errors, flush=True)
    return found


def errors_of(model_type: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (relation, [its two keys, class of the error]) for each relation that a type needs."""
    from transformers import CONFIG_MAPPING  # noqa: PLC0415 - seconds

    kind = CONFIG_MAPPING[model_type]
    try:
        defaults = kind().to_dict()
    except Exception:  # noqa: BLE001 - an optional library, or a config that wants more
        return
    pairs = [(one, keys_of(one, defaults, kind.attribute_map)) for one in RELATIONS]
    if not any(keys for _, keys in pairs):
        return
    values = working_values(model_type, defaults)
    for relation, keys in pairs if values is not None else ():
        number = {**defaults, **values}.get(keys[0]) if keys else None
        if keys and type(number) is int:
            error = called(model_type, {**values, keys[1]: relation.broken(number)})
            if error is not None:
                yield relation.name, [*keys, error.partition(":")[0]]


def working_values(model_type: str, defaults: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return small values with which a model of the type can be called; None if none is found."""
    refused = []
    for other in OTHERS:
        values = {key: value for key, value in {**SMALL, **other}.items() if key in defaults}
        if (error := called(model_type, values)) is None:
            return values
        refused.append(error)
    print(f"{model_type}: {refused[-1]}", file=sys.stderr, flush=True)
    return None


def called(model_type: str, values: Mapping[str, Any]) -> str | None:
    """Build the type's model and call it; return the error as text, None without one."""
    import torch  # noqa: PLC0415 - seconds
    from transformers import CONFIG_MAPPING, AutoModel, AutoModelForCausalLM  # noqa: PLC0415

    torch.manual_seed(0)
    try:
        config = CONFIG_MAPPING[model_type](**values)
        config._experts_implementation = "eager"
        autos = (AutoModel, AutoModelForCausalLM)
        auto = next((one for one in autos if type(config) in one._model_mapping), None)
        if auto is None:
            return "no auto class"
        with torch.device("meta"):
            size = sum(one.numel() for one in auto.from_config(config).parameters())
        if size > MOST:
            return f"too large: {size:,} parameters"
        model = auto.from_config(config, dtype=torch.float32).eval()
    except Exception as error:  # noqa: BLE001 - any error of the library is the answer
        return f"{type(error).__name__}: {error}"[:200]
    answer = "no inputs"
    for inputs in inputs_of(config):
        try:
            with torch.no_grad():
                model(**inputs)
        except Exception as error:  # noqa: BLE001 - likewise
            if answer == "no inputs" or "unexpected keyword" in answer:
                answer = f"{type(error).__name__}: {error}"[:200]
        else:
            return None
    return answer


def inputs_of(config: Any) -> Iterator[dict[str, Any]]:
    import torch  # noqa: PLC0415 - seconds

    ids = torch.randint(3, 60, (2, 16))
    size, channels = getattr(config, "image_size", 16), getattr(config, "num_channels", 3)
    size = size if isinstance(size, int) else 16
    yield {"input_ids": ids, "use_cache": False}
    yield {"input_ids": ids, "decoder_input_ids": ids, "use_cache": False}
    yield {"pixel_values": torch.zeros((1, channels, size, size))}
    yield {"input_values": torch.zeros((1, 4000))}


def main() -> None:
    lines = (f" {json.dumps(key)}: {json.dumps(errors)}" for key, errors in relations().items())
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    if len(sys.argv) == 1:
        PLACE.write_text(text)


if __name__ == "__main__":
    main()
