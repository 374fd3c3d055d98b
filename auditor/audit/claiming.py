"""Claims about a model, judged by the count that its config implies and by its stored numbers."""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from types import MappingProxyType
from typing import Any, NamedTuple

from msgspec.structs import replace

from auditor.analytic import Config, Expectation
from auditor.audit.default_configs import is_model_type, snapshot_of_type
from auditor.audit.expected import (
    NotImplied,
    config_faults,
    expectation_of,
    require_known_class,
)
from auditor.audit.model import declaration_of
from auditor.audit.options import Options
from auditor.audit.pipeline import examine, require_taken, with_given
from auditor.checkpoint.snapshot import Snapshot
from auditor.claims.judge import judge_all
from auditor.claims.subject import StoredNumbers, subject_of
from auditor.claims.verdict import Verdict
from auditor.downloader.fetching import fetch
from auditor.errors import CheckpointError, Reason, SourceError, UsageError
from auditor.findings import BadConfig
from auditor.messages import log_line
from auditor.report import Report, Unaudited


class Claim(NamedTuple):
    """A published number as text, and the name of the part that it counts; "" for the model."""

    text: str
    part: str = ""


def claim(  # noqa: PLR0913 - one keyword for each choice a caller has
    model: str | PathLike[str],
    claims: str | Claim | Sequence[str | Claim],
    *,
    target: str | None = None,
    source: str = "hub",
    token: str | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
    say: Callable[[str], None] = log_line,
) -> tuple[Verdict, ...]:
    """Judge published counts of a model, or of a part of it: one verdict for each, in their order.

    A claim is text ("110M", "8x7B", "V*D + L*D") or a Claim with the name of a part. The other
    arguments are those of `audit`; `model` may also be a model type, such as "bert".
    Raise SourceError if there is nothing to compare with, UsageError for an impossible request.
    """
    if target is not None:
        require_known_class(target)
    model = fspath(model)
    if is_model_type(model):
        snapshot = snapshot_of_type(model)
    else:
        snapshot = fetch(model, source=source, token=token, say=say)
    expectation, config = implied_by(snapshot, target, settings, say)
    stored = None if settings else _stored_numbers(snapshot, target)
    subject = subject_of(snapshot.model, expectation, config, stored)
    given = [claims] if isinstance(claims, str | Claim) else claims
    pairs = [(one, "") if isinstance(one, str) else (one.text, one.part) for one in given]
    return judge_all(subject, pairs)


def implied_by(
    snapshot: Snapshot,
    target: str | None,
    settings: Mapping[str, Any],
    say: Callable[[str], None],
) -> tuple[Expectation, Config | None]:
    """Return the expectation of a config with other values, and the config.

    The config is None if the expectation is not a closed form. Faults of the config are reported
    by `say`. Raise SourceError if the config implies no tensors, UsageError if the class cannot
    be built with the settings.
    """
    snapshot, arguments = with_given(snapshot, settings)
    try:
        declared = declaration_of(snapshot)
        if declared is None:
            raise SourceError(Reason.NO_CONFIG, f"{snapshot.model} has no config.json to count by")
        config = replace(declared.config, arguments=arguments)
        target = target or declared.target
        loader = declared.loader
        implied = expectation_of(config, target, loader=loader, stored=lambda: None)
    except CheckpointError as error:
        implied = NotImplied(error)
    match implied:
        case NotImplied(SourceError() as refusal):
            raise refusal
        case NotImplied(refusal) if settings:
            raise UsageError(f"--set: {refusal}")
        case NotImplied(refusal):
            raise SourceError(Reason.NO_CONFIG, f"nothing follows from the config: {refusal}")
    expectation = implied.expectation
    require_taken(arguments, expectation.target)
    for fault in config_faults(expectation):
        if settings:
            raise UsageError(f"--set: {fault}")
        say(f"{BadConfig.kind}: {fault}")
    if declared is not None and declared.names is not None:
        return declared.names.of(expectation), None
    has_tree = expectation.by != "oracle"
    return expectation, implied.choice.kind.config if has_tree and implied.choice else None


def _stored_numbers(snapshot: Snapshot, target: str | None) -> StoredNumbers | None:
    """Return the counts of the stored tensors; None if no header, or not every header, was read."""
    if not snapshot.headers:
        return None
    outcome: Report | Unaudited = examine(
        snapshot, Options(requested=snapshot.model, target=target, depth=0)
    )
    observed = outcome.observed
    if observed is None or observed.elements is None:
        return None
    return StoredNumbers(elements=observed.elements, packed=observed.layout is not None)
