"""Configs with only a model type and defaults, for `audit explain`, and changes of their values."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from auditor.analytic import catalogue, generated
from auditor.analytic.config_classes import of_model_type
from auditor.analytic.config_classes.declarations import of_family, of_name
from auditor.analytic.target import Classes
from auditor.checkpoint.snapshot import RepoFile, Snapshot, Source, TextFile
from auditor.downloader.bundled import PAPERS
from auditor.errors import CheckpointError, UsageError
from auditor.messages import meant, quoted


def is_model_type(requested: str) -> bool:
    """Return whether an argument is a model type, and neither a model's name nor a path."""
    is_known = catalogue.siblings(requested) or generated.siblings(requested)
    is_class = "." in requested  # "diffusers.CLASS" has a generated form too
    is_type = bool(is_known) and not is_class and requested not in PAPERS
    return is_type and not Path(requested).exists()


def snapshot_of_type(model_type: str, oracle: Classes | None = None) -> Snapshot:
    """Return the snapshot of a config that has only a model type and the type's base class.

    The oracle, if it is given, knows the type; else there is a closed or a generated form.
    """
    source: Classes = oracle or (catalogue if catalogue.siblings(model_type) else generated)
    classes, base = source.siblings(model_type), source.base_class(model_type)
    target = base if base in classes else classes[0]
    values = {"architectures": [target], "model_type": model_type}
    file = _config_file(values)
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
        values = dict(snapshot.config.as_config.values)
    except CheckpointError as error:
        raise UsageError(f"--set: {error}") from None
    family = _aliases(values)
    for key, value in settings.items():
        _require_known(key, values, family)
        _set(values, key.split("."), value, family.get(key, ()))
    return replace(snapshot, config=_config_file(values))


def _require_known(
    key: str, values: Mapping[str, Any], family: Mapping[str, tuple[str, ...]]
) -> None:
    """Raise UsageError for an unknown key that resembles a known key, as it is probably a typo.

    `text_config.hidden_size` is a key of the config class of the nested config.
    """
    kind = of_model_type(str(values.get("model_type")))
    base = of_name("PreTrainedConfig")
    path = key.split(".")
    known: set[str] = set(family)
    for name in path:
        if kind is None or base is None:
            return
        known |= {*kind.fields, *kind.attribute_map, *kind.parts, *base.fields, *values}
        if name not in known and (hint := meant(name, known)):
            raise UsageError(f"--set: {kind.name} has no key {quoted(name)}{hint}")
        part, inner = kind.parts.get(name), values.get(name)
        values = inner if isinstance(inner, Mapping) else {}
        stated = str(values.get("model_type") or (part.model_type if part else ""))
        kind = of_name(part.class_name) if part and part.class_name else of_family(stated)
        known = set()


def is_key_of_config(snapshot: Snapshot, key: str) -> bool:
    """Return whether the config class of the config's model type has this key."""
    if snapshot.config is None:
        return False
    try:
        values = snapshot.config.as_config.values
    except CheckpointError:
        return False
    model_type = values.get("model_type")
    kind = of_model_type(model_type) if isinstance(model_type, str) else None
    return kind is not None and key in kind.fields


def _aliases(values: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the other names of each key, such as n_embd for hidden_size."""
    model_type = values.get("model_type")
    if not isinstance(model_type, str) or not catalogue.siblings(model_type):
        return {}
    family = catalogue.family(model_type)
    names_by_key = {key: family.aliases.get(key, ()) for key in family.defaults}
    for alias, key in family.synonyms.items():
        names_by_key[alias] = (
            key,
            *(name for name in family.aliases.get(key, ()) if name != alias),
        )
    return names_by_key


def _set(values: dict[str, Any], path: list[str], value: Any, aliases: tuple[str, ...]) -> None:
    key, *inner_path = path
    if inner_path:
        inner = values.get(key)
        values[key] = dict(inner) if isinstance(inner, Mapping) else {}
        _set(values[key], inner_path, value, aliases)
        return
    for alias in aliases:
        values.pop(alias, None)
    values[key] = value


def parsed_setting(text: str) -> tuple[str, Any]:
    """Split `hidden_size=1024` into key and value; raise UsageError if there is no `=` or key."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise UsageError(f"--set {quoted(text)}: say it as hidden_size=1024")
    try:
        return key.strip(), json.loads(value)
    except ValueError:
        return key.strip(), value.strip()


def _config_file(values: Mapping[str, Any]) -> TextFile:
    content = (json.dumps(values, indent=2) + "\n").encode()
    return TextFile(name="config.json", content=content)
