"""Add the findings of the rules about numbers, and a diagnosis for each error or warning.

A finding about headers that numbers can decide (a duplicate, an added bias) is replaced by the
decided one. Counts and the residual of the outcome stay unchanged.
"""

from collections.abc import Callable, Iterable
from itertools import chain

from auditor.findings import Finding
from auditor.findings.ignore import Ignore
from auditor.report import Report, Unaudited
from auditor.values.adding import with_more_findings
from auditor.values.evidence import Evidence
from auditor.values.rules.adapters import added_norms, no_op_adapter
from auditor.values.rules.broken import all_zero, not_finite, padded_dtype
from auditor.values.rules.copies import (
    heads_equal_to_embeddings,
    judged_biases,
    judged_duplicates,
    repeated_layers,
)
from auditor.values.rules.initializer import fresh_heads, untrained
from auditor.values.rules.magnitudes import mislabeled_dtypes, outliers, subnormals
from auditor.values.rules.uniform import constant_matrices, part_zero
from auditor.values.rules.untrained_rows import untrained_rows
from auditor.values.tokens import Tokens

_RULES: tuple[Callable[[Evidence], Iterable[Finding]], ...] = (
    not_finite,
    all_zero,
    no_op_adapter,
    fresh_heads,
    padded_dtype,
    repeated_layers,
    heads_equal_to_embeddings,
    outliers,
    subnormals,
    mislabeled_dtypes,
    constant_matrices,
    untrained,
)


def with_findings(
    evidence: Evidence, tokens: Tokens, ignore: tuple[Ignore, ...], extra: Iterable[Finding] = ()
) -> Report | Unaudited:
    """Add the findings of the rules to the outcome, and the findings `extra` of a comparison."""
    judged = chain(judged_duplicates(evidence), judged_biases(evidence))
    judged_by_id: dict[int, tuple[Finding, ...]] = {id(old): new for old, new in judged}
    outcome = evidence.outcome
    old = [judged_by_id.get(id(finding), (finding,)) for finding in outcome.findings]
    new = [
        *chain(*(rule(evidence) for rule in _RULES)),
        *part_zero(evidence, tokens),
        *untrained_rows(evidence, tokens),
        *extra,
    ]
    return with_more_findings(outcome, new, ignore, old=old, notes=added_norms(evidence))
