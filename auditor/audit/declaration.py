"""The declarations of config.json about a checkpoint; for GGUF see `gguf_declaration`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from auditor.analytic import Config, catalogue
from auditor.analytic.repository_loader import Loader, of_pipeline, of_sentence_transformers
from auditor.analytic.target import custom_class
from auditor.audit.native_twins import NativeTwin, as_native_twin
from auditor.audit.other_programs import STATIC
from auditor.audit.own_names import OwnNames
from auditor.checkpoint.snapshot import Snapshot, TextFile
from auditor.containers.manifest import MODULE_KEYS, SENTENCE, TRANSFORMERS, ManifestEntry
from auditor.errors import CheckpointError
from auditor.findings import BadConfig, ConfigOverwritten, Finding, OfKeys
from auditor.layouts.packing import Declared
from auditor.messages import listed, quoted
from auditor.reconciler.repository_rules.repository_case import value_text


class Declaration(NamedTuple):
    """A config, with the settings of other files that matter for its tensors."""

    config: Config
    target: str | None = None  # class to audit for; None for the declared one
    quantization: Declared | None = None  # the layout, if other files declare it
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()  # faults of the declaring files
    loader: Loader | None = None  # chooses the class if `architectures` does not
    custom_class: str | None = None  # class in auto_map that is the repository's code
    stated: Config | None = None  # as written, if `config` is that of the class's native twin
    names: OwnNames | None = None  # those of the twin's tensors in the files


def is_gguf(snapshot: Snapshot) -> bool:
    """Return whether an opened weight file is a GGUF file."""
    return any(head.name.lower().endswith(".gguf") for head in snapshot.headers)


def where(snapshot: Snapshot) -> str:
    """Return the file that declares the tensors, or that should declare them."""
    if snapshot.config is not None and not is_gguf(snapshot):
        return snapshot.config.name
    return min((head.name for head in snapshot.headers), default="config.json")


def module_of(entry: ManifestEntry | None) -> str | None:
    """Return the class of a sentence-transformers module; None for a model of transformers."""
    if entry is None or entry.library != SENTENCE or entry.kind in TRANSFORMERS:
        return None
    return entry.kind


def declared_by_config(snapshot: Snapshot, entry: ManifestEntry | None) -> Declaration | None:
    """Return the declaration of config.json; None if the snapshot has no config.

    `entry` is the entry of this model in the manifest of a repository of several models. Raise
    CheckpointError for a file that is not a config.
    """
    if snapshot.config is None:
        is_static = module_of(entry) == STATIC
        return Declaration(Config(values=MappingProxyType({}))) if is_static else None
    config = snapshot.config.as_config
    if module_of(entry) is not None:
        return Declaration(config)
    if overwritten := _overwritten(snapshot, snapshot.config.name, config.values, entry):
        return Declaration(config, findings=(overwritten,))
    return _with_custom_class(_under(config, entry, snapshot.settings))


def _overwritten(
    snapshot: Snapshot, file: str, values: Mapping[str, object], entry: ManifestEntry | None
) -> OfKeys | None:
    """Return a finding if a model's config.json has the settings of another module, else None.

    Without a manifest, return a finding only for settings of a Pooling module: it has no weights,
    so the stored weights belong to another module.
    """
    if entry is not None and entry.library != SENTENCE:
        return None
    keys_by_kind = {kind: values.keys() & {*keys} for kind, keys in MODULE_KEYS.items()}
    kind = max(keys_by_kind, key=lambda kind: len(keys_by_kind[kind]))
    keys = sorted(keys_by_kind[kind])
    if not keys or not values.keys().isdisjoint(("model_type", "architectures")):
        return None
    if entry is None and (kind != "Pooling" or not snapshot.headers):
        return None
    module = entry.kind if entry else "transformer"
    return ConfigOverwritten(
        says=tuple((file, key, value_text(values[key])) for key in keys),
        reason=f"{file} has {listed(keys)}, the settings of a {kind} module, and no model_type: "
        f"an upload without folders wrote them over the config of the {module}",
        fix=f"upload the config of the {module} as {file}, and the settings of each other module "
        "in the folder that modules.json names",
    )


def _with_custom_class(declared: Declaration) -> Declaration:
    """Add the class in the repository's own code, if auto_map names one."""
    config = declared.config
    first = next(iter(config.architectures), None)
    class_name = declared.loader.requested_class if declared.loader else first
    custom = custom_class(config, class_name)
    if custom is None:
        return _with_twin(declared, as_native_twin(config, None))
    if catalogue.is_taken_over(custom.rpartition(".")[2], config.model_type or ""):
        note = f"auto_map names {quoted(custom)}, which transformers took over under that name"
        return declared._replace(notes=(*declared.notes, note))
    return _with_twin(declared._replace(custom_class=custom), as_native_twin(config, custom))


def _with_twin(declared: Declaration, twin: NativeTwin | None) -> Declaration:
    """Add the config of the class that transformers took over, if there is one."""
    if twin is None:
        return declared
    if twin.package is not None:
        own, native = declared.config.architectures[0], twin.config.architectures[0]
        note = f"{own} is a class of the package {twin.package}; its native twin is transformers'"
        notes = (*declared.notes, f"{note} {native}: compared by map")
        declared = declared._replace(notes=notes)
    return declared._replace(config=twin.config, stated=declared.config, names=twin.names)


def _under(config: Config, entry: ManifestEntry | None, settings: TextFile | None) -> Declaration:
    """Return the config as the manifest's library reads it, with the loader of that library."""
    match entry:
        case ManifestEntry(library="transformers", kind=kind):
            return Declaration(config, loader=of_pipeline(kind))
        case ManifestEntry(library="sentence_transformers", kind=kind):
            try:
                values = settings.object if settings else {}
            except CheckpointError as error:
                bad = BadConfig(file=settings.name if settings else "", reason=str(error))
                return _under(config, entry, None)._replace(findings=(bad,))
            loader = of_sentence_transformers(kind, config.model_type, values)
            return Declaration(_overlaid(config, values), loader=loader)
    return Declaration(config)


def _overlaid(config: Config, settings: Mapping[str, object]) -> Config:
    """Add the settings that sentence-transformers passes to AutoConfig.from_pretrained."""
    for key in ("config_kwargs", "config_args"):
        arguments = settings.get(key)
        if isinstance(arguments, Mapping) and arguments:
            return replace(config, values=MappingProxyType({**config.values, **arguments}))
    return config
