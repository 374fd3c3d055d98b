"""One model: what its config implies, what its files hold, and both compared."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

from auditor.analytic import Config
from auditor.analytic.choose import Refusal
from auditor.analytic.kv_cache import kv_cache
from auditor.downloader.select import ADAPTER_CONFIG
from auditor.downloader.snapshot import Snapshot
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.examining.case import Case, no_weights, report, unaudited, without_expectation
from auditor.expecting import (
    Implied,
    Opinion,
    implied,
    of_diffusers,
    of_module,
    reasons,
    said_of,
    second_opinion,
)
from auditor.layouts import unknown, unpack
from auditor.layouts.declared import declaration
from auditor.layouts.fused import separated
from auditor.layouts.packing import PLAIN, Declared
from auditor.reconciler.claims import drafting_notes, listed_size_rule
from auditor.reconciler.contents import contents
from auditor.reconciler.findings import BadConfig
from auditor.reconciler.ignore import Ignore
from auditor.reconciler.matching import shapes_of
from auditor.reconciler.said import is_gguf, said, where
from auditor.reconciler.spoken import Said
from auditor.report import Report, Unaudited, expected_side


def examine(  # noqa: PLR0913 - one keyword for each choice a caller has
    snapshot: Snapshot,
    *,
    requested: str,
    target: str | None = None,
    module: str | None = None,
    depth: int | None = None,
    ignore: tuple[Ignore, ...] = (),
    oracle: bool = False,
    weights: bool = True,
) -> Report | Unaudited:
    """Audit one model; `module` is its class where it is one of sentence-transformers.

    Without `weights` it is taken for a config alone.
    """
    held = snapshot if weights else replace(snapshot, heads=(), index=None, unopened=())
    case = Case(snapshot, contents(held), depth, ignore, {}, [])
    case.know(
        requested=requested,
        model=snapshot.model,
        commit=snapshot.commit,
        source=snapshot.source,
        origin=snapshot.origin,
        fetched=snapshot.fetched,
        target=target or module,
        notes=case.found.notes,
    )
    if snapshot.config is not None and snapshot.config.name == ADAPTER_CONFIG:
        return _adapter(case, target)
    try:
        says = said(snapshot)
        if says is None:
            return _unsaid(case)
        case = case.knowing(says.findings)
        found = _expected(case, says, target, module, oracle=oracle and not module)
    except CheckpointError as error:
        bad = (BadConfig(file=where(snapshot), reason=reason) for reason in reasons(error))
        return without_expectation(case, *bad)
    except SourceError as error:
        return unaudited(case, error.reason, str(error))
    if isinstance(found, Refusal):
        return unaudited(case, found.reason, found.detail)
    return _compared(case, found)


class _Expected(NamedTuple):
    """What the config says, and what follows from it."""

    config: Config
    implied: Implied
    declared: Declared | None
    opinion: Opinion


def _expected(
    case: Case, says: Said, target: str | None, module: str | None, *, oracle: bool
) -> _Expected | Refusal:
    """Raises CheckpointError for a config from which nothing follows."""
    config, snapshot = says.config, case.snapshot
    drafts = () if case.found.unread else drafting_notes(config, case.found.tensors)
    notes = (*case.found.notes, *says.notes, *drafts)
    case.know(declared=config.architectures, model_type=config.model_type, notes=notes)
    if module:
        found = of_module(config, module)
    else:
        chosen = partial(case.know_choice, said=notes)
        found = _of_diffusers(case, config) or implied(
            config, target or says.target, chosen, depth=case.depth
        )
    if isinstance(found, Refusal):
        return found
    expectation = found.expectation
    case.contradictions.extend(said_of(expectation))
    opinion = second_opinion(config, expectation) if oracle else Opinion()
    files = {snapshot.packing.name: snapshot.packing.content} if snapshot.packing else {}
    declared = says.declared or declaration(config.values, files)
    _ = config.dtype  # one that is none ends here, not later
    case.know(expected=expected_side(expectation), kv_cache=kv_cache(expectation, config.values))
    return _Expected(config, found, declared, opinion)


def _of_diffusers(case: Case, config: Config) -> Refusal | None:
    found = of_diffusers(config)
    if found is not None:
        case.know(target=str(config.values["_class_name"]))
    return found


def _compared(case: Case, found: _Expected) -> Report | Unaudited:
    config, declared, expected = found.config, found.declared, found.implied.expectation
    if case.found.empty:
        model = case.snapshot.model
        detail = f"{model} is a config alone: there are no weights to compare it with"
        files = () if declared else case.snapshot.files
        sizes = listed_size_rule(files, expected, config.dtype)
        return no_weights(case, expected, detail, *found.opinion.findings, *sizes)
    packer = unknown(declared) if declared is not None else None
    if packer is not None:
        detail = f"the weights are packed by {packer}: its layout is not known here"
        return unaudited(case, Reason.UNKNOWN_LAYOUT, detail)
    tensors, shapes = case.found.tensors, shapes_of(expected)
    try:
        unpacked = unpack(tensors, declared, shapes)
        if len(tensors) < len(expected.tensors):  # else there is no use in looking at each name
            unpacked = separated(unpacked, tensors, shapes)
    except CheckpointError as error:
        file = declared.where if declared else where(case.snapshot)
        return without_expectation(case, BadConfig(file=file, reason=str(error)))
    return report(case, config.dtype, found.implied, unpacked, found.opinion)


def _adapter(case: Case, target: str | None) -> Report | Unaudited:
    """The same of an adapter: what it should hold follows from its config and its base's."""
    from auditor.examining.adapters import adapted  # noqa: PLC0415 - most are whole models

    try:
        found = adapted(case.snapshot, case.found.tensors, target)
    except CheckpointError as error:
        return without_expectation(case, BadConfig(file=where(case.snapshot), reason=str(error)))
    if isinstance(found, Refusal):
        return unaudited(case, found.reason, found.detail)
    expectation = found.implied.expectation
    case.know(target=expectation.target, model_type=expectation.model_type)
    case.know(notes=(*case.found.notes, *found.notes), expected=expected_side(expectation))
    if case.found.empty:
        detail = f"{case.snapshot.model} is an adapter's config alone: there are no weights"
        return no_weights(case, expectation, detail)
    return report(case, None, found.implied, PLAIN, Opinion(unchecked=found.unchecked))


def _unsaid(case: Case) -> Report | Unaudited:
    """No file says what to expect, or the one that would is broken."""
    if is_gguf(case.snapshot):
        return without_expectation(case)
    model = case.snapshot.model
    detail = f"{model} has no config.json: nothing says what its tensors should be"
    return unaudited(case, Reason.NO_CONFIG, detail)
