"""Audits of what `save_pretrained` of transformers and PEFT writes."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from os import fspath
from pathlib import Path
from typing import Any

from auditor.audit.pipeline import audit
from auditor.errors import PublishError, UsageError
from auditor.findings import Severity
from auditor.formats import verdict
from auditor.messages import printable, quoted
from auditor.report import Report, Unaudited

_log = logging.getLogger("auditor.integrations")


def fault_of(folder: str | Path) -> str | None:
    """Audit a saved folder and log what stands in it; return the message if there is an error.

    Asks no network: an adapter's base comes from a folder or the cache.
    """
    try:
        outcome = audit(fspath(folder), source="cache")
    except UsageError as error:
        _log.warning("not audited: %s", error)
        return None
    message = _message(outcome)
    findings = [finding for one in outcome.every for finding in one.findings]
    has_errors = any(finding.severity is Severity.ERROR for finding in findings)
    if has_errors or (isinstance(outcome, Report) and outcome.residual):
        _log.error(message)
        return message
    _log.log(logging.INFO if outcome.verdict == "clean" else logging.WARNING, message)
    return None


def _message(outcome: Report | Unaudited) -> str:
    word, _ = verdict.word(outcome)
    cause = verdict.headline_cause(outcome)
    fix = f" Fix: {cause.fix}" if cause else ""
    return printable(f"{quoted(outcome.requested)}: {word}: {verdict.sentence(outcome)}{fix}")


@contextmanager
def audited_saves(model: Any) -> Iterator[None]:
    """Audit all that the model's `save_pretrained` writes in the block, as `push_to_hub` calls it.

    The model is one of transformers or a PeftModel. A push with an error in the saved files raises
    PublishError before it sends a file; a save without a push only logs the error.
    """
    save, push = model.save_pretrained, model.push_to_hub
    is_pushing = False

    def save_pretrained(*args: Any, **kwargs: Any) -> Any:
        given = signature(save).bind(*args, **kwargs)
        is_push = given.arguments.pop("push_to_hub", False)
        saved = save(*given.args, **given.kwargs)
        if given.arguments.get("is_main_process", True):
            fault = fault_of(given.arguments["save_directory"])
            if fault and (is_push or is_pushing):
                raise PublishError(f"nothing was pushed: {fault}")
        return save(*args, **kwargs) if is_push else saved

    def push_to_hub(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_pushing
        is_pushing = True
        try:
            return push(*args, **kwargs)
        finally:
            is_pushing = False

    model.save_pretrained, model.push_to_hub = save_pretrained, push_to_hub
    try:
        yield
    finally:
        del model.save_pretrained, model.push_to_hub
