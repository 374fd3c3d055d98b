"""Rules about companion files and about config values stated twice. The rules read no files."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from auditor.analytic import Config, Expectation
from auditor.analytic.config_classes import of_model_type
from auditor.checkpoint.snapshot import Snapshot, Source
from auditor.companions.reading import Companions
from auditor.findings import Finding
from auditor.messages import listed
from auditor.observation import Checked
from auditor.reconciler.repository_rules.config_rules import contradiction_findings, key_findings
from auditor.reconciler.repository_rules.plain_lists import unmatched_findings
from auditor.reconciler.repository_rules.repository_case import RepositoryCase
from auditor.tensors import StoredTensor

_UNREAD = "companion files: tokenizer, generation config, chat template and processor are not read"

# Files that show that a folder is a repository, and not only weights fetched from one.
_IN_REPOSITORIES = (
    *("README.md", "tokenizer", "vocab", "preprocessor_config", "processor_config"),
    "video_preprocessor_config",
)


class RepositoryFindings(NamedTuple):
    """The findings about a model's config and companion files."""

    findings: tuple[Finding, ...] = ()
    unchecked: tuple[str, ...] = ()  # sentences about files that were not read
    checked: Mapping[str, Checked] = MappingProxyType({})  # the rules' answers by property


def repository_findings(
    snapshot: Snapshot,
    stored: tuple[StoredTensor, ...],
    config: Config,
    expectation: Expectation | None,
    *,
    is_custom: bool,
) -> RepositoryFindings:
    """Apply all rules to one model; `is_custom` if its class is the repository's own code.

    Raise CheckpointError for a config whose types are wrong.
    """
    companions, settings = snapshot.companions, snapshot.settings
    case = RepositoryCase(
        names=frozenset(file.name for file in snapshot.files),
        is_complete=companions is not None and _is_complete(snapshot),
        is_local=snapshot.source is Source.FOLDER,
        config_file=snapshot.config.name if snapshot.config else "config.json",
        config=config.values,
        kind=of_model_type(config.model_type) if config.model_type else None,
        is_custom=is_custom,
        target=expectation.target if expectation else next(iter(config.architectures), None),
        stored=stored,
        expected=lambda: expectation.tensors if expectation else (),
        memory_names=_memory_names(expectation) if "quantization_config" in config.values else (),
        companions=Companions.of(companions),
        settings=settings.values if settings else {},
    )
    findings = (*contradiction_findings(case), *key_findings(case), *unmatched_findings(case))
    if snapshot.config is None:
        case.checked["config"] = Checked("absent", "no config was read")
    if companions is None:
        return RepositoryFindings(findings, (_UNREAD,), case.checked)
    from auditor.reconciler.repository_rules.of_files import (  # noqa: PLC0415 - few have companions
        file_findings,
    )

    findings += tuple(file_findings(case))
    return RepositoryFindings(findings, tuple(unchecked_companions(case.companions)), case.checked)


def _memory_names(expectation: Expectation | None) -> tuple[str, ...]:
    if expectation is None:
        return ()
    return tuple(expectation.loading.renamed([one.name for one in expectation.tensors]))


def _is_complete(snapshot: Snapshot) -> bool:
    """Whether a file that the listing does not contain is also absent from the repository."""
    if not snapshot.partial:
        return True
    if snapshot.commit is not None:
        return False  # the Hugging Face cache is filled file by file
    names = (file.name for file in snapshot.files)
    return any(name.startswith(_IN_REPOSITORIES) or name.endswith(".py") for name in names)


def unchecked_companions(companions: Companions) -> Iterator[str]:
    """Yield a line for each companion file that was not read completely."""
    unread = [name for name, file in companions.files.items() if file.content is None]
    if unread:
        reasons = {companions.files[name].unread for name in unread}
        why = f": {next(iter(reasons))}" if len(reasons) == 1 else ""
        yield f"{listed(unread)}: not read{why}"
    for name, vocabulary in companions.vocabularies.items():
        if vocabulary.unread:
            yield f"{name}: not read: {vocabulary.unread}"
    for name, reason in sorted(companions.unread.items()):
        yield f"{name}: {reason}"
