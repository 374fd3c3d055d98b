"""Write auditor/data/unread.json: the parameters that a class of transformers never reads.

`{class: [names]}`: a small model of the class is called with every input that its forward takes,
in evaluation and in training. A parameter is unread if no output has a gradient with respect to it,
and if other values of it change no output. Parameters inside lists of layers do not count: whether
they are read depends on lengths and numbers. A class that takes an input which this program cannot
make is left out.
"""

import inspect
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rebuild_relations import working_values
from small_models import SMALL

PLACE = Path(__file__).resolve().parents[1] / "auditor" / "data" / "unread.json"
DEPTHS = frozenset({"num_hidden_layers", "num_layers", "encoder_layers", "decoder_layers"})
FRAMES = 16_000  # of audio: the masks of a training need some
# Inputs that reach no parameter which the inputs of `inputs_of` do not reach.
OTHER_INPUTS = re.compile(
    r"output_\w+|return_\w+|use_cache|past_key_values|cache|cache_position|\w*inputs_embeds|kwargs"
    r"|labels|\w+_labels?|\w+_positions|\w*head_mask|\w*attention_mask|\w*position_ids|args"
    r"|encoder_outputs|encoder_hidden_states|bool_masked_pos|logits_to_keep"
    r"|interpolate_pos_encoding"
)
# Models of two parts: the types of each part.
COMPOSITES: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "vision-encoder-decoder": (("vit", "deit", "beit", "swin"), ("trocr", "gpt2", "bert")),
    "encoder-decoder": (("bert", "roberta", "electra"), ("bert", "roberta", "gpt2")),
    "speech-encoder-decoder": (("wav2vec2", "hubert"), ("bert", "gpt2", "mbart")),
}
SMALL_PARTS: Mapping[str, Mapping[str, Any]] = {
    "swin": {"image_size": 32, "patch_size": 4, "embed_dim": 16, "window_size": 4}
    | {"depths": [1, 1], "num_heads": [2, 4]}
}


def unread() -> dict[str, list[str]]:
    import torch  # noqa: PLC0415 - seconds
    import transformers  # noqa: PLC0415 - likewise
    from transformers import CONFIG_MAPPING  # noqa: PLC0415 - likewise

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    read, found = dict[str, set[str]](), dict[str, set[str]]()
    for model_type in sys.argv[1:] or [*COMPOSITES, *sorted({*CONFIG_MAPPING} - {*COMPOSITES})]:
        for config in configs_of(model_type):
            for one in classes_of(config):
                names = names_of(one, config)
                read.setdefault(one.__name__, set()).update(names[0])
                found.setdefault(one.__name__, set()).update(names[1])
    left = {name: sorted(names - read[name]) for name, names in sorted(found.items())}
    return {name: names for name, names in left.items() if names}


def configs_of(model_type: str) -> Iterator[Any]:
    """Yield small configs of the type, with which a model of it can be called."""
    from transformers import CONFIG_MAPPING  # noqa: PLC0415 - seconds

    kind = CONFIG_MAPPING[model_type]
    first, second = COMPOSITES.get(model_type, ((), ()))
    for encoder in map(part_of, first):
        for decoder in second:
            decodes = part_of(decoder, is_decoder=True, add_cross_attention=True)
            yield kind(encoder=encoder, decoder=decodes, decoder_start_token_id=1, pad_token_id=0)
    try:
        values = None if first else working_values(model_type)
    except Exception:  # noqa: BLE001 - an optional library, or a config that needs more
        return
    for depth in (2, 5) if values is not None else ():
        deeper = dict.fromkeys(values.keys() & DEPTHS, depth)
        with suppress(Exception):  # lists by layer are of the first depth
            yield kind(**{**values, **deeper})


def part_of(model_type: str, **others: Any) -> dict[str, Any]:
    from transformers import CONFIG_MAPPING  # noqa: PLC0415 - seconds

    kind = CONFIG_MAPPING[model_type]
    known = {*kind().to_dict(), *kind.attribute_map}
    values = {key: value for key, value in SMALL.items() if key in known}
    values = SMALL_PARTS.get(model_type, values)
    return {**kind(**values, **others).to_dict(), "model_type": model_type}


def classes_of(config: Any) -> Iterator[Any]:
    """Yield the classes of models that take a config, from the files beside its class."""
    import transformers  # noqa: PLC0415 - seconds
    from transformers import PreTrainedModel  # noqa: PLC0415 - likewise

    package = type(config).__module__.rpartition(".")[0]
    for name in sorted(dir(transformers)):
        one = getattr(transformers, name, None)
        if not isinstance(one, type) or not issubclass(one, PreTrainedModel):
            continue
        is_base = one.__name__.lower().endswith("pretrainedmodel")
        if one.config_class is type(config) and one.__module__.startswith(package) and not is_base:
            yield one


def names_of(one: Any, config: Any) -> tuple[set[str], set[str]]:
    """Return the names on disk that are read, and those that are not; none if a call fails."""
    import torch  # noqa: PLC0415 - seconds

    try:
        torch.manual_seed(0)
        model = one._from_config(config, dtype=torch.float32)
        inputs = inputs_of(one, config, model)
        names = [name for name, _ in model.named_parameters() if not re.search(r"\.\d+\.", name)]
        for is_training in (False, True):
            reached = reached_by(model.train(is_training), inputs)
            names = [name for name in names if name not in reached]
        names = [name for name in names if not changes(model, name, inputs)]
        stored = on_disk(model, names)
    except Exception as error:  # noqa: BLE001 - any error of the library: the class is left out
        print(f"{one.__name__}: {type(error).__name__}: {error}"[:200], file=sys.stderr, flush=True)
        return set(), set()
    unread = {name for name, is_unread in stored.items() if is_unread}
    print(one.__name__, sorted(unread), file=sys.stderr, flush=True)
    return {*stored} - unread, unread


def inputs_of(one: Any, config: Any, model: Any) -> dict[str, Any]:
    """Return a value for each input of the class's forward; raise LookupError if one is unknown."""
    import torch  # noqa: PLC0415 - seconds

    signature = inspect.signature(one.forward).parameters
    ids = torch.randint(3, 60, (2, 16))
    sound = torch.randn((2, FRAMES))
    vision = getattr(config, "vision_config", None) or getattr(config, "encoder", None) or config
    channels = getattr(vision, "num_channels", 3)
    height, width = pair(getattr(vision, "image_size", 16))
    known = {
        "input_ids": ids,
        "decoder_input_ids": ids[:, :8],
        "token_type_ids": torch.zeros_like(ids),
        "langs": torch.zeros_like(ids),
        "pixel_values": torch.rand((2, channels, height, width)),
        "input_values": sound,
        "bbox": torch.arange(4).repeat(2, 16, 1),
    }
    if config.model_type == "speech-encoder-decoder":
        known = {"inputs": sound, "input_values": sound, "decoder_input_ids": ids[:, :8]}
    if any("mask_token" in name for name, _ in model.named_parameters()):
        high, wide = pair(config.patch_size)
        patches = (height // high) * (width // wide)
        known["bool_masked_pos"] = torch.arange(patches).repeat(2, 1) % 2 == 0
    unknown = [
        key for key in signature if not (key in {"self", *known} or OTHER_INPUTS.fullmatch(key))
    ]
    if unknown:
        raise LookupError(f"takes {', '.join(unknown)}")
    return {key: value for key, value in known.items() if key in signature}


def pair(size: Any) -> tuple[int, int]:
    return (size, size) if isinstance(size, int) else tuple(size)


def outputs_of(model: Any, inputs: Mapping[str, Any]) -> list[Any]:
    """Return the floats in the outputs of one call, which is as random as any other call."""
    import torch  # noqa: PLC0415 - seconds

    torch.manual_seed(0)
    known = inspect.signature(model.forward).parameters
    more = {key: True for key in ("output_hidden_states", "output_attentions") if key in known}
    return list(floats_in(model(**inputs, **more)))


def floats_in(value: Any) -> Iterator[Any]:
    import torch  # noqa: PLC0415 - seconds

    if isinstance(value, torch.Tensor):
        if value.is_floating_point():
            yield value
        return
    values = value.values() if isinstance(value, Mapping) else value
    if not isinstance(value, Mapping | list | tuple):
        values = list(vars(value).values()) if hasattr(value, "__dict__") else ()
    for each in values:
        yield from floats_in(each)


def reached_by(model: Any, inputs: Mapping[str, Any]) -> set[str]:
    """Return the parameters with a gradient of all outputs together."""
    model.zero_grad(set_to_none=True)
    sums = (each.double().sum() for each in outputs_of(model, inputs) if each.requires_grad)
    sum(sums).backward()
    return {name for name, each in model.named_parameters() if each.grad is not None}


def changes(model: Any, name: str, inputs: Mapping[str, Any]) -> bool:
    """Whether other values of a parameter change an output."""
    import torch  # noqa: PLC0415 - seconds

    state = {key: value.clone() for key, value in model.state_dict().items()}
    others = {**state, name: 10 * torch.randn_like(state[name])}
    outputs: list[list[Any]] = []
    with torch.no_grad():
        for is_training in (False, True):
            for values in (state, others):
                model.load_state_dict(values)
                outputs.append(
                    [one.clone() for one in outputs_of(model.train(is_training), inputs)]
                )
        model.load_state_dict(state)
    pairs = (*zip(outputs[0], outputs[1], strict=True), *zip(outputs[2], outputs[3], strict=True))
    return any(not torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)) for a, b in pairs)


def on_disk(model: Any, names: list[str]) -> dict[str, bool]:
    """Return, by the name that save_pretrained writes, whether a tensor holds one of the names."""
    import torch  # noqa: PLC0415 - seconds
    from safetensors.torch import load_file  # noqa: PLC0415 - likewise

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.fill_(float("nan") if name in names else 0)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        stored = load_file(Path(folder) / "model.safetensors")
    floats = {name: one for name, one in stored.items() if one.is_floating_point()}
    return {name: bool(one.isnan().any()) for name, one in floats.items()}


def main() -> None:
    lines = (f" {json.dumps(key)}: {json.dumps(names)}" for key, names in unread().items())
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    if len(sys.argv) == 1:
        PLACE.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
