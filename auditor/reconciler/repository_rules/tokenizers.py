"""The rule between a tokenizer of a pipeline and its text encoder: no id beyond the embedding."""

from collections.abc import Iterable

from msgspec.structs import replace

from auditor.analytic import ExpectedTensor
from auditor.checkpoint.snapshot import Snapshot
from auditor.companions.companion_files import CompanionFile
from auditor.names import file_name
from auditor.reconciler.contents import contents
from auditor.reconciler.repository_rules import RepositoryFindings, unchecked_companions
from auditor.reconciler.repository_rules.repository_case import RepositoryCase
from auditor.reconciler.repository_rules.token_ids import token_id_findings


def tokenizer_findings(
    folder: str, files: Iterable[CompanionFile], encoder: Snapshot
) -> RepositoryFindings:
    """Compare the ids of the tokenizer in a folder with the rows that its encoder stores."""
    file = encoder.config
    case = RepositoryCase(
        names=frozenset(),
        is_complete=False,
        config_file=file.name if file else "config.json",
        config=file.values if file else {},
        kind=None,
        is_custom=False,
        target=None,
        stored=contents(encoder).tensors,
        expected=tuple[ExpectedTensor],
        companions={file_name(one.name): replace(one, name=file_name(one.name)) for one in files},
    )
    findings = tuple(
        replace(
            finding,
            says=tuple(
                (f"{folder}/{name}" if name in case.companions else name, key, value)
                for name, key, value in finding.says
            ),
            reason=f"{folder}: {finding.reason}",
        )
        for finding in token_id_findings(case)
    )
    return RepositoryFindings(
        findings, tuple(f"{folder}: {line}" for line in unchecked_companions(case))
    )
