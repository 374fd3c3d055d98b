"""The pipeline: source -> snapshot -> stored and expected tensors -> report."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike, fspath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from auditor.analytic import catalogue
from auditor.analytic.catalogue import OPTIONS as ARGUMENTS
from auditor.audit.default_configs import (
    is_key_of_config,
    is_model_type,
    snapshot_of_type,
    with_settings,
)
from auditor.audit.expected import oracle_of_type, require_known_class, require_oracle
from auditor.audit.guard import outcome_of
from auditor.audit.model import examine_model
from auditor.audit.options import LookAtValues, Options
from auditor.audit.outcome import SomeOutcome, with_code_in_files
from auditor.checkpoint.filenames import CONFIG, Chooser, checked_variant
from auditor.checkpoint.other_formats import unaudited_detail
from auditor.checkpoint.selecting import (
    select,
    select_compared,
    select_config,
    select_describing,
    with_companions,
    with_torch_copies,
)
from auditor.checkpoint.skipped import skipped_lines
from auditor.checkpoint.snapshot import Snapshot
from auditor.errors import Reason, SourceError, UsageError
from auditor.findings.ignore import Ignore
from auditor.messages import described, log_line, named, quoted
from auditor.options import AuditRequest
from auditor.report import Outcome, Report, Unaudited

if TYPE_CHECKING:
    from auditor.comparing import Comparison

# The reasons for which the files of a repository may have another format.
_WITHOUT_WEIGHTS = frozenset((Reason.NO_WEIGHTS, Reason.NO_SAFETENSORS))


def audit(
    model: str | PathLike[str] | AuditRequest,
    *,
    say: Callable[[str], None] = log_line,
    **choices: Any,
) -> Report | Unaudited:
    """Account for every tensor of a checkpoint, from its config and headers alone.

    `model` is a request, or the checkpoint's name or path; in the latter case, `choices` are the
    other fields of AuditRequest; `ignore` may be text, as for the command: `["unexpected:*"]`.
    `say` is called with a line if the work waits or reads from another source; by default the line
    goes to the logger `auditor`.

    A repository of several models has an outcome with `parts`, one for each model; its counts are
    the sums of theirs. Counts are in elements and parameters, sizes in bytes. Raise UsageError for
    a model or a class that cannot be audited, TypeError for a choice that does not exist; any other
    failure, of the network or by a bug of this package, is an outcome.
    """
    request = model if isinstance(model, AuditRequest) else _request(fspath(model), choices)
    if target := request.target:
        require_known_class(target)
    if request.oracle:
        require_oracle()
    options = Options(
        requested=request.model,
        target=target,
        depth=request.depth,
        ignore=request.ignore,
        oracle=request.oracle,
        engines=request.engines,
        kv_cache=request.kv_cache,
        values=_values_reader(request, say),
    )
    fetch_snapshot = partial(_fetch, request, say)
    examine_snapshot: Callable[[Snapshot, Options], Report | Unaudited] = examine
    if request.verify or request.verify_against is not None:
        examine_snapshot = _verified(request.verify_against, token=request.token, say=say)
    outcome = _outcome(options, fetch_snapshot, examine_snapshot)
    log_line(
        f"{request.model}: {outcome.verdict}; {outcome.fetched.requests} requests, "
        f"{outcome.fetched.bytes:,} bytes, {outcome.fetched.seconds:.1f} s"
    )
    if request.config is None:
        return outcome
    note = f"the config is that of {quoted(request.config)}"
    return replace(outcome, notes=(note, *outcome.notes))


def _request(model: str, choices: dict[str, Any]) -> AuditRequest:
    given = choices.pop("ignore", ())
    ignore = (given,) if isinstance(given, str | Ignore) else given
    parsed = tuple(Ignore.parse(one) if isinstance(one, str) else one for one in ignore)
    return AuditRequest(model=model, ignore=parsed, **choices)


def _fetch(request: AuditRequest, say: Callable[[str], None]) -> Snapshot:
    """Read the checkpoint, and the requested config if any; raise SourceError if reading fails."""
    from auditor.downloader.fetching import fetch  # noqa: PLC0415 - a model type needs no download

    fetch_model = partial(fetch, source=request.source, token=request.token, say=say)
    snapshot = fetch_model(request.model, choose=_chooser(request))
    if not request.companions:  # the snapshot may contain them nevertheless
        snapshot = replace(snapshot, companions=None)
    if request.materials:
        from auditor.downloader.digests import with_materials  # noqa: PLC0415 - few audits

        snapshot = with_materials(snapshot, say)
    if request.config is None:
        return snapshot
    other = fetch_model(request.config, choose=select_config)
    if other.config is None:
        raise SourceError(Reason.NO_CONFIG, f"{other.model} has no config")
    return replace(snapshot, config=replace(other.config, name=CONFIG))


def _chooser(request: AuditRequest) -> Chooser:
    """Return the function that selects the files to read."""
    choose: Chooser = select
    if request.variant is not None:
        choose = partial(select, variant=checked_variant(request.variant))
    if request.torch_copies:
        choose = partial(with_torch_copies, choose=choose)
    return partial(with_companions, choose=choose) if request.companions else choose


def _values_reader(request: AuditRequest, say: Callable[[str], None]) -> LookAtValues | None:
    """Return the reader of numbers and of the base's files; None if the request needs neither."""
    if not request.reads_values and request.base is None:
        return None
    from auditor.values.examination import ValuesReader  # noqa: PLC0415 - few read numbers

    return ValuesReader(request, say)


def _verified(
    against: str | None, *, token: str | None, say: Callable[[str], None]
) -> Callable[[Snapshot, Options], Report | Unaudited]:
    """Return a function that audits a snapshot, and then compares the digests of its files."""
    from auditor.values.verifying import Verifier  # noqa: PLC0415 - few audits read whole files

    look = Verifier(against, token=token, say=say)
    return lambda snapshot, options: look(examine(snapshot, options), snapshot, options.ignore)


def _outcome(
    options: Options,
    fetch_snapshot: Callable[[], Snapshot],
    examine_snapshot: Callable[[Snapshot, Options], Report | Unaudited],
) -> Report | Unaudited:
    """Fetch a model and audit it; every failure becomes an outcome."""
    nothing = Outcome(requested=options.requested, target=options.target)

    def work() -> Report | Unaudited:
        try:
            snapshot = fetch_snapshot()
        except SourceError as error:
            outcome = with_code_in_files(nothing, error.snapshot, options)
            detail = str(error)
            if isinstance(error.snapshot, Snapshot):
                outcome = _with_skipped(outcome, error.snapshot)
                if error.reason in _WITHOUT_WEIGHTS:
                    place = named(error.snapshot.model)
                    detail = unaudited_detail(error.snapshot, place) or detail
            return unread(outcome.as_unaudited(error.reason, detail), options.engines)
        return examine_snapshot(snapshot, options)

    def crashed(detail: str) -> Unaudited:
        return nothing.as_unaudited(Reason.CRASHED, detail)

    return outcome_of(work, crashed, UsageError)


def unread(outcome: Unaudited, engines: Sequence[str]) -> Unaudited:
    """Return the outcome of a model that was not read; the engines' verdicts are unknown."""
    if not engines:
        return outcome
    from auditor.audit.engine_verdicts import unknown_verdicts  # noqa: PLC0415 - few audits ask

    return replace(outcome, engines=unknown_verdicts(engines, outcome.detail))


def explain(  # noqa: PLR0913 - one keyword for each choice a caller has
    model: str | PathLike[str],
    *,
    target: str | None = None,
    source: str = "hub",
    token: str | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
    say: Callable[[str], None] = log_line,
) -> Report | Unaudited:
    """Return what the config of a checkpoint implies; its weights are not read.

    The config of GGUF files is in their metadata; a model type as `model` stands for the defaults
    of its config class. `settings` are values for keys of the config, and for arguments of the
    class's constructor (add_pooling_layer); the other arguments are those of `audit`. The outcome
    is Unaudited(no-weights) with `expected` and `modules`, a Report if the config is broken, or
    Unaudited for another reason.
    """
    if target is not None:
        require_known_class(target)

    def examine_config(snapshot: Snapshot, options: Options) -> Report | Unaudited:
        changed, arguments = with_given(snapshot, settings)
        alone = replace(changed, manifest=None, components=())
        outcome = examine_model(alone, replace(options, arguments=arguments))
        require_taken(arguments, outcome.target)
        return outcome

    model = fspath(model)
    options = Options(requested=model, target=target, weights=False)
    fetch_snapshot = partial(describing_snapshot, model, source=source, token=token, say=say)
    return _outcome(options, fetch_snapshot, examine_config)


def with_given(
    snapshot: Snapshot, settings: Mapping[str, Any]
) -> tuple[Snapshot, Mapping[str, bool]]:
    """Return the snapshot with the settings in its config, and the constructor arguments in them.

    Raise UsageError for a value that cannot be set.
    """
    arguments = {
        name: value
        for name, value in settings.items()
        if name in ARGUMENTS and not is_key_of_config(snapshot, name)
    }
    for name, value in arguments.items():
        if not isinstance(value, bool):
            raise UsageError(f"--set {name}: true or false is needed, not {described(value)}")
    keys = {key: value for key, value in settings.items() if key not in arguments}
    return with_settings(snapshot, keys), arguments


def require_taken(arguments: Mapping[str, bool], target: str | None) -> None:
    """Raise UsageError if the class does not accept an argument, or if its effect is unknown."""
    for name in arguments:
        if target is None or not catalogue.takes(target, name):
            raise UsageError(
                f"--set {name}: {target or 'the class'} takes no such argument, as far as closed "
                "forms say; base models do (BertModel, ViTModel)"
            )


def describing_snapshot(
    model: str,
    *,
    source: str,
    token: str | None,
    say: Callable[[str], None],
) -> Snapshot:
    """Read the config of a model, or create that of a model type; weights are not read.

    A name that no source has may be a model type that only transformers knows.
    """
    if is_model_type(model):
        return snapshot_of_type(model)
    from auditor.downloader.fetching import fetch  # noqa: PLC0415 - as above

    try:
        return fetch(model, source=source, token=token, say=say, choose=select_describing)
    except SourceError:
        if (oracle := oracle_of_type(model)) is None:
            raise
        return snapshot_of_type(model, oracle)


def diff(  # noqa: PLR0913 - one keyword for each choice a caller has
    first: str | PathLike[str],
    second: str | PathLike[str],
    *,
    values: bool = False,
    source: str = "hub",
    token: str | None = None,
    say: Callable[[str], None] = log_line,
) -> "Comparison":
    """Compare two checkpoints; the arguments are those of `audit`.

    Either may be of any format, quantized or not. Tensors that both store alike are compared byte
    by byte if both are on this machine; `values` also samples their numbers, unpacked. Raise
    SourceError if one of them cannot be read or has nothing to compare, UsageError for an
    impossible request.
    """
    from auditor.audit.two_models import compare_models  # noqa: PLC0415 - no audit compares two
    from auditor.downloader.fetching import fetch  # noqa: PLC0415 - as above

    before, after = (
        fetch(fspath(model), source=source, token=token, say=say, choose=select_compared)
        for model in (first, second)
    )
    return compare_models(before, after, values=values, say=say)


def _with_skipped(outcome: SomeOutcome, snapshot: Snapshot) -> SomeOutcome:
    """Name the entries of the folder that were not looked into."""
    if not snapshot.skipped:
        return outcome
    return replace(outcome, unchecked=(*outcome.unchecked, *skipped_lines(snapshot.skipped)))


def examine(snapshot: Snapshot, options: Options) -> Report | Unaudited:
    """Audit a snapshot; the outcome depends only on it and, with the oracle, on transformers."""
    outcome = _examine(snapshot, options)
    outcome = _with_skipped(outcome, snapshot)
    if not options.engines:
        return outcome
    from auditor.audit.engine_verdicts import with_engines  # noqa: PLC0415 - few audits ask

    return with_engines(outcome, snapshot, options)


def _examine(snapshot: Snapshot, options: Options) -> Report | Unaudited:
    if not (snapshot.manifest or snapshot.components):
        return examine_model(snapshot, options)
    from auditor.audit.repository import examine_repository  # noqa: PLC0415 - most hold one model

    return examine_repository(snapshot, options)
