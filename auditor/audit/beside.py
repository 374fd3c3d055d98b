"""Findings of the rules about a repository, for one model under audit."""

from typing import TYPE_CHECKING

from auditor.analytic import Config, Expectation
from auditor.analytic.config_classes import of_model_type
from auditor.bounded.json_text import parse_object
from auditor.checkpoint.snapshot import Snapshot
from auditor.errors import CheckpointError
from auditor.messages import listed
from auditor.reconciler.repository_rules.config_rules import contradiction_findings, key_findings
from auditor.reconciler.repository_rules.repository_case import RepositoryCase

if TYPE_CHECKING:
    from auditor.audit.outcome import ModelAudit

_UNREAD = "companion files: tokenizer, generation config, chat template and processor are not read"

# Files that show a folder to be a repository, and not weights alone that were fetched from one.
_SHOW = ("README.md", "tokenizer", "vocab", "preprocessor_config", "processor_config")


def add_findings_beside(
    case: "ModelAudit", config: Config, expectation: Expectation | None, custom: str | None
) -> None:
    """Add what the config says twice, and what the files beside the weights say."""
    snapshot = case.snapshot
    companions = snapshot.companions
    of = RepositoryCase(
        names=frozenset(file.name for file in snapshot.files),
        whole=companions is not None and _is_whole(snapshot),
        config_file=snapshot.config.name if snapshot.config else "config.json",
        config=config.values,
        kind=of_model_type(config.model_type) if config.model_type else None,
        custom=custom is not None,
        target=expectation.target if expectation else next(iter(config.architectures), None),
        stored=case.found.tensors,
        expected=lambda: expectation.tensors if expectation else (),
        companions={file.name: file for file in companions or ()},
        settings=_settings(snapshot),
        shaping=_shaping(expectation),
    )
    case.add_findings((*contradiction_findings(of), *key_findings(of)))
    if companions is None:
        case.beside = (_UNREAD,)
        return
    from auditor.reconciler.repository_rules.of_files import (  # noqa: PLC0415 - where there are any
        file_findings,
    )

    case.add_findings(tuple(file_findings(of)))
    case.beside = tuple(_unchecked(of))


def _shaping(expectation: Expectation | None) -> frozenset[str] | None:
    if expectation is None or expectation.by != "closed-form":
        return None
    return frozenset(symbol.key.rpartition(".")[2] for symbol in expectation.legend)


def _settings(snapshot: Snapshot) -> dict[str, object]:
    if snapshot.settings is None:
        return {}
    try:
        return parse_object(snapshot.settings.content, snapshot.settings.name)
    except CheckpointError:
        return {}  # which is a finding of its own


def _is_whole(snapshot: Snapshot) -> bool:
    """Whether what is not listed is not there: of the Hub, and of a folder that is a repository."""
    if not snapshot.partial:
        return True
    if snapshot.commit is not None:
        return False  # the Hugging Face cache is filled file by file
    return any(file.name.startswith(_SHOW) or file.name.endswith(".py") for file in snapshot.files)


def _unchecked(of: RepositoryCase) -> list[str]:
    """Yield the companion files that were not read, or only in part."""
    others = [name for name, file in of.companions.items() if file.content is None]
    why = {of.companions[name].unread for name in others}
    found = []
    if others:
        only = f": {next(iter(why))}" if len(why) == 1 else ""
        found.append(f"{listed(others)}: not read{only}")
    found += [
        f"{name}: not read: {vocabulary.unread}"
        for name, vocabulary in of.vocabularies.items()
        if vocabulary.unread
    ]
    return [*found, *(f"{name}: {why}" for name, why in sorted(of.unread.items()))]
