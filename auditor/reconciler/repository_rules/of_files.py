"""All rules about the files beside the weights."""

from collections.abc import Callable, Iterator

from auditor.reconciler.findings import Finding
from auditor.reconciler.repository_rules import (
    chat_templates,
    code_files,
    end_tokens,
    generation_settings,
    processors,
    token_ids,
)
from auditor.reconciler.repository_rules.repository_case import RepositoryCase

_RULES: tuple[Callable[[RepositoryCase], Iterator[Finding]], ...] = (
    token_ids.token_id_findings,
    end_tokens.end_token_findings,
    chat_templates.template_findings,
    generation_settings.generation_findings,
    code_files.code_findings,
    processors.processor_findings,
)


def file_findings(case: RepositoryCase) -> Iterator[Finding]:
    """What they say; `case.unread` then has what could not be told."""
    for rule in _RULES:
        yield from rule(case)
