"""Write auditor/data/companion_pairs.json: the key of a config that a companion's must fit.

`bins` is {model type: [key of the extractor, key of the config, factor]}. The extractor's key is
one that changes the bins of its features. The config's key is one without which a small model of
the type, or of the nested config that has the key, works only with features of its own number of
bins. `sides` is {model type: key of the config}, as `image_sides` finds it.
"""

import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from image_sides import sides
from small_models import built, config_class, first_success, number_in, small_values, text_of

DATA = Path(__file__).resolve().parents[1] / "auditor" / "data"
_KEYS = ("feature_size", "num_mel_bins", "n_mels")  # of extractors; 1 if they return waves
_FEWEST = 20  # bins of a spectrogram
_WORDS = ("mel", "feat", "input")  # in keys of configs
_FACTORS = (1, 2)  # SeamlessM4T stacks two frames


def pairs(model_types: Iterable[str] = ()) -> Iterator[tuple[str, list[Any]]]:
    """Yield (model type, its pair) for each of the types whose model refuses other features."""
    types = json.loads((DATA / "processors.json").read_text())["by_type"]
    for model_type in sorted(model_types or types):
        extractor = types[model_type].get("feature_extractor_type")
        for key, bins, shape in features(extractor) if extractor else ():
            for path, factor in candidates(model_type, bins):
                if decides(model_type, path, (bins, factor), shape):
                    yield model_type, [key, path, factor]


def features(extractor: str) -> Iterator[tuple[str, int, tuple[str, int]]]:
    """Yield (key, bins, (name of the features, axis of the bins)) of an extractor's class."""
    import numpy as np  # noqa: PLC0415 - seconds
    import transformers  # noqa: PLC0415 - seconds

    kind = getattr(transformers, extractor)
    wave = np.random.default_rng(0).standard_normal(32_000).astype("float32")
    for key in _KEYS:
        try:
            with warnings.catch_warnings(action="ignore"):  # of empty filters
                bins = getattr(kind(), key, 0)
                one, half = (
                    each(wave, sampling_rate=each.sampling_rate, return_tensors="np")
                    for each in (kind(), kind(**{key: bins // 2}))
                )
        except Exception as error:  # noqa: BLE001 - an optional library, or another interface
            print(extractor, text_of(error), file=sys.stderr)
            continue
        for name, values in one.items() if bins >= _FEWEST else ():
            if not hasattr(values, "shape"):
                continue  # a list of features of several lengths
            axes = [i for i, n in enumerate(values.shape) if half[name].shape[i] != n]
            if len(axes) == 1:
                yield key, bins, (name, axes[0] - values.ndim)


def candidates(model_type: str, bins: int) -> Iterator[tuple[str, int]]:
    """Yield (path, factor) of each key that may be the number of bins, or a multiple of it."""

    def below(values: Mapping[str, Any], path: str) -> Iterator[tuple[str, int]]:
        for key, value in values.items():
            if isinstance(value, Mapping):
                yield from below(value, f"{path}{key}.")
            elif key == "num_mel_bins":
                yield f"{path}{key}", 1
            elif type(value) is int and not value % bins and any(word in key for word in _WORDS):
                yield f"{path}{key}", value // bins

    try:
        defaults = config_class(model_type)().to_dict()
    except Exception:  # noqa: BLE001 - a config that wants more
        return
    yield from (one for one in below(defaults, "") if one[1] in _FACTORS)


def decides(model_type: str, path: str, bins: tuple[int, int], shape: tuple[str, int]) -> bool:
    """Return whether the model works with its own number of bins, and only with that."""
    *parents, key = path.split(".")
    values: Any = config_class(model_type)().to_dict()
    for parent in parents:
        values = values[parent]
    inner = values.get("model_type", model_type) if parents else model_type
    number, factor = bins
    half = number // 2
    tried = ((number, number), (half, half), (number, half), (half, number))
    return [works(inner, {key: own * factor}, given * factor, shape) for own, given in tried] == [
        True,
        True,
        False,
        False,
    ]


def works(model_type: str, more: Mapping[str, Any], width: int, shape: tuple[str, int]) -> bool:
    """Return whether a small model of the type can be called with features of this width."""
    try:
        model = built(model_type, {**small_values(config_class(model_type)), **more})
    except Exception:  # noqa: BLE001 - any error of the library is the answer
        return False
    return first_success(model.__call__, _inputs(model.config, width, shape)) is None


def _inputs(config: Any, width: int, shape: tuple[str, int]) -> Iterator[dict[str, Any]]:
    import torch  # noqa: PLC0415 - seconds

    name, axis = shape
    ids = torch.randint(3, 60, (1, 8))
    for frames in (2 * number_in(config, ("max_source_positions",), 32), 64, 128):
        given = number_in(config, ("max_length",), frames)
        size = (1, width, given) if axis != -1 else (1, given, width)
        mask = torch.ones((1, given), dtype=torch.long)
        for own in (name, "input_features"):
            one = {own: torch.zeros(size)}
            yield one
            yield {**one, "decoder_input_ids": ids}
            yield {**one, "attention_mask": mask}
            yield {**one, "attention_mask": mask, "decoder_input_ids": ids}


def main() -> None:
    import transformers  # noqa: PLC0415 - seconds

    transformers.logging.set_verbosity_error()
    found: dict[str, list[Any]] = {}
    for model_type, pair in pairs(sys.argv[1:]):
        found.setdefault(model_type, pair)
        print(model_type, pair, flush=True)
    fixed = dict(sides(sys.argv[1:]))
    tables = {"bins": found, "sides": fixed}
    if len(sys.argv) == 1:
        (DATA / "companion_pairs.json").write_text(as_text(tables))


def as_text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """Return JSON with a line for each model type."""
    parts = []
    for name, table in tables.items():
        lines = (f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in table.items())
        parts.append(f' "{name}": {{\n' + ",\n".join(lines) + "\n }")
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    main()
