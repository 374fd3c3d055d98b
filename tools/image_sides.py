"""The model types whose images must have the config's size, for `rebuild_companion_pairs`.

A type is listed if its image processor makes images of the stated size, and if a small model of the
type works with images of its own size, and only with those: its positions are not interpolated.
It needs pillow.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from small_models import built, config_class, first_success, small_values

DATA = Path(__file__).resolve().parents[1] / "auditor" / "data"
_KEY = "image_size"
_SIDES = (32, 64)  # pixels; multiples of the usual patches
_PATCH = {"patch_size": 8}


def sides(model_types: Iterable[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield (model type, path of its image_size) of each type with a fixed size."""
    types = json.loads((DATA / "processors.json").read_text())["by_type"]
    for model_type in sorted(model_types or types):
        processor = types[model_type].get("image_processor_type")
        if not processor or not all(map(makes, [processor] * 2, _SIDES)):
            continue
        for path in paths(model_type):
            if is_fixed(model_type, path):
                yield model_type, path


def is_fixed(model_type: str, path: str) -> bool:
    """Return whether small models of the type work with images of their own side, and no others."""
    tried = [(own, given) for own in _SIDES for given in _SIDES]
    return [works(model_type, path, *pair) for pair in tried] == [a == b for a, b in tried]


def makes(processor: str, side: int) -> bool:
    """Return whether the processor makes images of the size that its keys state."""
    import numpy as np  # noqa: PLC0415 - seconds
    import transformers  # noqa: PLC0415 - seconds

    picture = np.random.default_rng(0).integers(0, 255, (48, 80, 3), dtype="uint8")
    square = {"height": side, "width": side}
    try:
        kind = getattr(transformers, f"{processor.removesuffix('Pil')}Pil")
        crops = getattr(kind(), "do_center_crop", None)
        key = "crop_size" if crops else "size"
        made = kind(**{key: square})(picture, return_tensors="np")["pixel_values"]
    except Exception:  # noqa: BLE001 - another interface, or an optional library
        return False
    return getattr(made, "shape", ())[-2:] == (side, side)


def paths(model_type: str) -> Iterator[str]:
    """Yield the paths of the image sizes in the type's default config."""

    def below(values: Mapping[str, Any], path: str) -> Iterator[str]:
        for key, value in values.items():
            if isinstance(value, Mapping):
                yield from below(value, f"{path}{key}.")
            elif key == _KEY and isinstance(value, int | list | tuple):
                yield f"{path}{key}"

    try:
        yield from below(config_class(model_type)().to_dict(), "")
    except Exception:  # noqa: BLE001 - a config that wants more
        return


def works(model_type: str, path: str, own: int, given: int) -> bool:
    """Return whether a small model for images of one side can be called with images of another."""
    values = small_values(config_class(model_type))
    inner = values
    *parents, key = path.split(".")
    for parent in parents:
        inner = inner.setdefault(parent, {})
    inner |= {**_PATCH, key: own}
    try:
        model = built(model_type, values)
    except Exception:  # noqa: BLE001 - any error of the library is the answer
        return False
    calls = [model.__call__]
    if features := getattr(model, "get_image_features", None):
        calls.append(features)
    return any(first_success(call, _inputs(given)) is None for call in calls)


def _inputs(side: int) -> Iterator[dict[str, Any]]:
    import torch  # noqa: PLC0415 - seconds

    ids, pixels = torch.randint(3, 60, (1, 8)), torch.zeros((1, 3, side, side))
    yield {"pixel_values": pixels}
    yield {"pixel_values": pixels, "input_ids": ids}
    yield {"pixel_values": pixels, "input_ids": ids, "attention_mask": torch.ones_like(ids)}
    yield {"pixel_values": pixels, "decoder_input_ids": ids}
