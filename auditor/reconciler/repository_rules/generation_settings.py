"""A generation config that transformers refuses to save."""

from collections.abc import Iterator

from auditor.companions.companion_files import GENERATION
from auditor.companions.generation import LIBRARY, refusals
from auditor.reconciler.findings import Finding, GenerationConfigInvalid
from auditor.reconciler.repository_rules.repository_case import RepositoryCase, value_text


def generation_findings(case: RepositoryCase) -> Iterator[Finding]:
    values = case.object(GENERATION)
    refused = refusals(values) if values else ()
    if not values or not refused:
        return
    each = "; ".join(f"{one.key} {value_text(values.get(one.key))}: {one.why}" for one in refused)
    keys = ", ".join(dict.fromkeys(one.key for one in refused if one.key))
    yield GenerationConfigInvalid(
        says=tuple((GENERATION, one.key, value_text(values.get(one.key))) for one in refused),
        reason=f"{LIBRARY} warns of it, and refuses to save it once it is changed: {each}",
        fix=f"remove {keys or 'the values that are no numbers'}, or set what they need",
    )
