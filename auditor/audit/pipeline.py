"""The pipeline: source -> snapshot -> stored tensors, config -> expected ones, both -> report."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from auditor.audit.expected import require_known_class, require_oracle
from auditor.audit.guard import outcome_of
from auditor.audit.model import examine_model
from auditor.audit.options import Options
from auditor.checkpoint.filenames import checked_variant
from auditor.checkpoint.selecting import (
    select,
    select_config,
    select_describing,
    with_torch_copies,
)
from auditor.checkpoint.selection import CONFIG, Chooser
from auditor.checkpoint.snapshot import Snapshot
from auditor.downloader import fetch
from auditor.errors import Reason, SourceError, UsageError
from auditor.messages import quoted
from auditor.reconciler.ignore import Ignore
from auditor.report import Outcome, Report, Unaudited


def audit(  # noqa: PLR0913 - one keyword for each choice a caller has
    model: str,
    *,
    target: str | None = None,
    source: str = "hub",
    token: str | None = None,
    depth: int | None = None,
    ignore: tuple[Ignore, ...] = (),
    oracle: bool = False,
    torch_copies: bool = False,
    variant: str | None = None,
    config: str | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> Report | Unaudited:
    """Account for every tensor of a checkpoint, from its config and headers alone.

    `model` is a Hub id (with `@revision`), a folder, a file, or a snapshot; `target` the class to
    audit for, config.architectures[0] if None; `source` one of "auto", "hub", "cache" and
    "bundled" (a local path is read where it is); `token` a Hugging Face access token, the stored
    one if None; `depth` how deep the report's module rows go, all the way if None; `oracle` asks
    transformers for a second opinion of the closed form; `torch_copies` compares safetensors with
    their copy in torch files on the Hub too, as is always done in a folder; `variant` ("fp16") the
    weights that from_pretrained loads where it is given one; `config` is a file, a folder or a
    model whose config is taken instead of the model's own; `say` gets a line where the work waits
    or falls back.

    A repository of several models has an outcome with `parts`, one for each of them, whose counts
    are their sums. Counts are in elements and parameters, sizes in bytes. Raises UsageError for a
    model or a class that cannot be asked for; all else, a network that fails and a bug of our own
    included, is an outcome.
    """
    if target is not None:
        require_known_class(target)
    if oracle:
        require_oracle()
    choose: Chooser = select
    if variant is not None:
        choose = partial(select, variant=checked_variant(variant))
    if torch_copies:
        choose = partial(with_torch_copies, choose=choose)
    fetched = partial(fetch, model, source=source, token=token, say=say, choose=choose)
    options = Options(requested=model, target=target, depth=depth, ignore=ignore, oracle=oracle)
    if config is None:
        return _outcome(options, fetched, examine)
    other = partial(fetch, config, source=source, token=token, say=say, choose=select_config)
    outcome = _outcome(options, lambda: _with_config(fetched(), other()), examine)
    return replace(outcome, notes=(f"the config is that of {quoted(config)}", *outcome.notes))


def _with_config(snapshot: Snapshot, other: Snapshot) -> Snapshot:
    """The files of one, read by the config of the other."""
    if other.config is None:
        raise SourceError(Reason.NO_CONFIG, f"{other.model} has no config")
    return replace(snapshot, config=replace(other.config, name=CONFIG))


def _outcome(
    options: Options,
    fetched: Callable[[], Snapshot],
    examined: Callable[[Snapshot, Options], Report | Unaudited],
) -> Report | Unaudited:
    """What comes of fetching a model and examining it, whatever happens on the way."""
    nothing = Outcome(requested=options.requested, target=options.target)

    def work() -> Report | Unaudited:
        try:
            snapshot = fetched()
        except SourceError as error:
            return nothing.as_unaudited(error.reason, str(error))
        return examined(snapshot, options)

    def crashed(detail: str) -> Unaudited:
        return nothing.as_unaudited(Reason.CRASHED, detail)

    return outcome_of(work, crashed, UsageError)


def explain(
    model: str,
    *,
    target: str | None = None,
    source: str = "hub",
    token: str | None = None,
    say: Callable[[str], None] = lambda _line: None,
) -> Report | Unaudited:
    """What the config of a checkpoint implies, whatever its weights: they are not looked at.

    Of GGUF files without a config their metadata say it. The arguments are those of `audit`. The
    outcome is Unaudited(no-weights), with `expected` and `modules` known; a Report where the config
    is broken; otherwise Unaudited for another reason.
    """
    if target is not None:
        require_known_class(target)

    def examined(snapshot: Snapshot, options: Options) -> Report | Unaudited:
        return examine_model(replace(snapshot, manifest=None, components=()), options)

    options = Options(requested=model, target=target, weights=False)
    fetched = partial(fetch, model, source=source, token=token, say=say, choose=select_describing)
    return _outcome(options, fetched, examined)


def examine(snapshot: Snapshot, options: Options) -> Report | Unaudited:
    """Audit what was fetched; a function of the snapshot alone, and of transformers if asked."""
    if not (snapshot.manifest or snapshot.components):
        return examine_model(snapshot, options)
    from auditor.audit.repository import examine_repository  # noqa: PLC0415 - most hold one model

    return examine_repository(snapshot, options)
