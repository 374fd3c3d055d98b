"""A model type alone, for `audit explain`: a config whose keys all have their defaults."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from auditor.analytic import catalogue, read_config
from auditor.analytic.config_classes import of_model_type
from auditor.checkpoint.snapshot import RepoFile, Snapshot, Source, TextFile
from auditor.downloader.bundled import PAPERS
from auditor.errors import CheckpointError, UsageError
from auditor.messages import quoted


def is_model_type(requested: str) -> bool:
    """Whether an argument is a model type, and neither a paper's model nor a path."""
    is_model_type = requested in catalogue.model_types() and requested not in PAPERS
    return is_model_type and not Path(requested).exists()


def snapshot_of_type(model_type: str) -> Snapshot:
    """Return a config with nothing but its model type and the type's class."""
    values = {"architectures": [catalogue.base_class(model_type)], "model_type": model_type}
    file = _written(values)
    return Snapshot(
        model=model_type,
        commit=None,
        source=Source.BUNDLED,
        origin="the defaults of the config class",
        files=(RepoFile(name=file.name, size=len(file.content)),),
        config=file,
    )


def with_settings(snapshot: Snapshot, settings: Mapping[str, Any]) -> Snapshot:
    """Change values in a snapshot's config; raise UsageError if it has no readable config."""
    if not settings:
        return snapshot
    if snapshot.config is None:
        raise UsageError(f"--set: {snapshot.model} has no config.json")
    try:
        values = dict(read_config(snapshot.config.name, snapshot.config.content).values)
    except CheckpointError as error:
        raise UsageError(f"--set: {error}") from None
    family = _aliases(values)
    for key, value in settings.items():
        _set(values, key.split("."), value, family.get(key, ()))
    return replace(snapshot, config=_written(values))


def is_key_of_config(snapshot: Snapshot, key: str) -> bool:
    """Whether the config class of the model's type has a key of that name."""
    if snapshot.config is None:
        return False
    try:
        values = read_config(snapshot.config.name, snapshot.config.content).values
    except CheckpointError:
        return False
    model_type = values.get("model_type")
    kind = of_model_type(model_type) if isinstance(model_type, str) else None
    return kind is not None and key in kind.fields


def _aliases(values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the other names of each key: n_embd is hidden_size."""
    model_type = values.get("model_type")
    if not isinstance(model_type, str) or not catalogue.siblings(model_type):
        return {}
    family = catalogue.family(model_type)
    names_by_key = {key: family.aliases.get(key, ()) for key in family.defaults}
    for alias, own in family.synonyms.items():
        names_by_key[alias] = (
            own,
            *(name for name in family.aliases.get(own, ()) if name != alias),
        )
    return names_by_key


def _set(values: dict[str, Any], path: list[str], value: Any, others: tuple[str, ...]) -> None:
    key, *below = path
    if below:
        inner = values.get(key)
        values[key] = dict(inner) if isinstance(inner, Mapping) else {}
        _set(values[key], below, value, others)
        return
    for other in others:
        values.pop(other, None)
    values[key] = value


def parsed_setting(text: str) -> tuple[str, Any]:
    """Split `hidden_size=1024` into key and value; raise UsageError for anything else."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set {quoted(text)}: say it as hidden_size=1024")
    try:
        return key.strip(), json.loads(value)
    except ValueError:
        return key.strip(), value.strip()


def _written(values: Mapping[str, Any]) -> TextFile:
    content = (json.dumps(values, indent=2) + "\n").encode()
    return TextFile(name="config.json", content=content)
