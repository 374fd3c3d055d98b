"""What reports of one checkpoint have in common, wherever it lies."""

import json
from typing import Any

from auditor import AuditRequest, audit
from auditor.formats.as_json import as_object

# The Hub publishes counts of its own; `claims` has them.
OF_A_SOURCE = {"requested", "model", "source", "origin", "version", "commit", "fetched", "claims"}


def of_any_source(address: str, **options) -> str:
    """The JSON of an audit, without the keys that name the source."""
    return without_source(as_object(audit(AuditRequest(model=address, **options))))


def without_source(document: dict[str, Any]) -> str:
    return json.dumps({key: document[key] for key in sorted(document.keys() - OF_A_SOURCE)})
