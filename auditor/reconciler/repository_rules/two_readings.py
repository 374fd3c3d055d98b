"""Two readings of one quantity: a number that one file states, and that others imply.

A contradiction is reported only if each number is stated in a file that was read.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.json import decode

from auditor.companions.companion_files import PROCESSORS
from auditor.companions.reading import Companions
from auditor.containers.manifest import Manifest
from auditor.findings import ConfigContradiction, Finding
from auditor.messages import named
from auditor.reconciler.repository_rules.repository_case import RepositoryCase, value_text
from auditor.tensors import natural_key

_DATA = Path(__file__).parents[2] / "data" / "companion_pairs.json"
Factors = tuple[tuple[int, int], ...]


class Reading(NamedTuple):
    """A number that a file states."""

    file: str
    key: str
    value: int

    def __str__(self) -> str:
        return f"{self.key} {self.value} of {named(self.file)}"


def disagreement(
    stated: Reading,
    others: Sequence[Reading],
    why: str,
    fix: str,
    factors: Factors = ((1, 0),),
) -> Iterator[Finding]:
    """Yield a finding unless the number is `times * sum + plus` of others for one of `factors`."""
    total = sum(one.value for one in others)
    expected = [times * total + plus for times, plus in factors]
    if stated.value in expected:
        return
    yield ConfigContradiction(
        says=tuple((one.file, one.key, value_text(one.value)) for one in (stated, *others)),
        reason=f"{stated.key} of {named(stated.file)} is {stated.value}, expected "
        f"{' or '.join(map(str, expected))} for {' + '.join(map(str, others))}: {why}",
        fix=fix,
    )


# --- spectrograms ---------------------------------------------------------------------------------


def bins_findings(case: RepositoryCase) -> Iterator[Finding]:
    """Report an extractor whose features have another number of bins than the model reads."""
    pair = _pairs().bins.get(str(case.config.get("model_type")))
    if pair is None or case.is_custom:
        return
    key, path, factor = pair
    value = _at(case.config, path)
    for file, values in _processors(case, "feature_extractor"):
        bins = values.get(key)
        if type(value) is int and type(bins) is int:
            yield from disagreement(
                Reading(file, key, bins * factor),
                (Reading(case.config_file, path, value),),
                "the model cannot read the features",
                f"upload the {file} that the model was trained with, or set {key} to "
                f"{value // factor}",
            )


class _Pairs(Struct, frozen=True):
    """The keys of a companion and of the config that must fit, by model type."""

    bins: Mapping[str, tuple[str, str, int]]  # key of the extractor, key of the config, factor
    sides: Mapping[str, str]  # key of the config: the height and width of all images


@cache
def _pairs() -> _Pairs:
    return decode(_DATA.read_bytes(), type=_Pairs)


def _at(config: Mapping[str, Any], path: str) -> object:
    """Return the value at a dotted path, None if it is absent."""
    value: Any = config
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _processors(case: RepositoryCase, part: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (file, values of the part or of the file itself) of each settings file."""
    for file in PROCESSORS:
        whole = case.companions.object(file) or {}
        inner = whole.get(part)
        yield file, inner if isinstance(inner, Mapping) else whole


# --- images ---------------------------------------------------------------------------------------


def side_findings(case: RepositoryCase) -> Iterator[Finding]:
    """Report an image processor whose images have another size than the model's positions."""
    path = _pairs().sides.get(str(case.config.get("model_type")))
    if path is None or case.is_custom:
        return
    needed = _sides(_at(case.config, path))
    for file, values in _processors(case, "image_processor"):
        key = "crop_size" if values.get("do_center_crop") else "size"
        if key == "size" and (values.get("do_resize") is False or "crop_size" in values):
            continue  # the class's default decides whether the images are cropped
        made = _sides(values.get(key), is_square=key == "crop_size")
        for axis, own, given in zip(_AXES, needed, made, strict=False):
            if own != given:
                yield from disagreement(
                    Reading(file, f"{key}.{axis}", given),
                    (Reading(case.config_file, path, own),),
                    "the model has no positions for other images",
                    f"upload the {file} that the model was trained with, or set its {key} to "
                    f"{' x '.join(map(str, needed))}",
                )
                break


_AXES = ("height", "width")


def _sides(value: object, *, is_square: bool = True) -> tuple[int, ...]:
    """Return height and width; () if the value does not state both."""
    if isinstance(value, Mapping):
        value = [value.get(axis) for axis in _AXES] if value.keys() == {*_AXES} else ()
    elif type(value) is int and is_square:
        value = (value, value)
    numbers = value if isinstance(value, list | tuple) else ()
    is_complete = len(numbers) == len(_AXES) and all(type(one) is int for one in numbers)
    return tuple(numbers) if is_complete else ()


# --- modules of sentence-transformers -------------------------------------------------------------

_MODES = "pooling_mode"
_OLDER_MODES = (
    *("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens"),
    "lasttoken",
)
_WIDTHS = ("embedding_dimension", "word_embedding_dimension")


def module_findings(
    manifest: Manifest, configs: Mapping[str, Mapping[str, Any]], companions: Companions
) -> Iterator[Finding]:
    """Report a Dense whose inputs are not as many as the outputs of the modules before it.

    `configs` has the config of each component, by folder. Modules are called in the order of
    their folders' numbers.
    """
    before: tuple[Reading, ...] = ()
    for entry in sorted(manifest.entries, key=lambda one: natural_key(one.folder)):
        file = f"{entry.folder}/config.json"
        if entry.kind == "Pooling":
            before = _pooled(file, companions.object(file) or {})
        elif entry.kind == "Dense" and entry.folder:
            values = configs.get(entry.folder, {})
            inputs, outputs = values.get("in_features"), values.get("out_features")
            is_next = values.get("module_input_name", "sentence_embedding") == "sentence_embedding"
            if before and is_next and type(inputs) is int:
                yield from disagreement(
                    Reading(file, "in_features", inputs),
                    before,
                    "encode() raises",
                    f"set the pooling modes with which {entry.folder} was trained",
                )
            before = ()
            if type(outputs) is int and "module_output_name" not in values:
                before = (Reading(file, "out_features", outputs),)
        elif entry.kind not in {"Normalize", "Dropout", "LayerNorm"}:
            before = ()


def _pooled(file: str, values: Mapping[str, Any]) -> tuple[Reading, ...]:
    """Return a reading for each pooling mode: their outputs are concatenated."""
    width = next((values[key] for key in _WIDTHS if type(values.get(key)) is int), None)
    modes = values.get(_MODES)
    if isinstance(modes, str):
        modes = [modes]
    if modes is None:
        keys = [f"{_MODES}_{mode}" for mode in _OLDER_MODES]
        modes = [key for key in keys if values.get(key)] or [_MODES]
    if width is None or not isinstance(modes, list):
        return ()
    return tuple(Reading(file, str(mode), width) for mode in modes)
