"""fetch: from what the user wrote to a Snapshot, whichever source has it, and an adapter's base."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from auditor.address_space import require_address_space
from auditor.bounded.json_text import parse_object
from auditor.checkpoint.filenames import CONFIG, Chooser
from auditor.checkpoint.selecting import (
    ADAPTER_CONFIG,
    select,
    select_config,
    select_place,
    select_tagged,
)
from auditor.checkpoint.snapshot import BaseModel, Snapshot, Source
from auditor.downloader import bundled, huggingface_cache, local_folder
from auditor.downloader.model_argument import HubModel, parse_id, parse_model
from auditor.errors import CheckpointError, Reason, SourceError, UsageError
from auditor.messages import quoted

_SOURCES = ("auto", "hub", "cache", "bundled")
Say = Callable[[str], None]

# The Hub did not answer, or not well: a copy on this machine may be read instead. Where it
# answered ("gated", "not found"), it has spoken.
_NO_ANSWER = frozenset(
    (
        Reason.OFFLINE,
        Reason.UNREACHABLE,
        Reason.TIMED_OUT,
        Reason.RATE_LIMITED,
        Reason.SERVER_ERROR,
        Reason.BAD_RESPONSE,
    )
)


# Bytes of address space that an audit of the Hub needs beside Python. The HTTP library, which is
# written in Rust, ends the process if memory is refused to it.
_HTTP_SPACE = 64 * 1024 * 1024

_WAYS_OUT = "without it, --source cache, --source bundled or --source auto may have the model"


def ignore_message(_: str) -> None:
    """Drops a message: the default where the caller wants none."""


def fetch(
    requested: str,
    *,
    source: str = "hub",
    token: str | None = None,
    say: Say = ignore_message,
    choose: Chooser = select,
) -> Snapshot:
    """The config, the index and the headers of one checkpoint, and nothing of its weights.

    `requested` is a path, or a Hub id with an optional `@revision`; a path that exists wins.
    An adapter comes with the config of the base that it names, or with why that cannot be had.
    A model that only a paper describes is its config, whatever the source.
    `source` says where an id is looked up, `say` is called, with one line each, for waits and for
    stand-ins, `choose` picks the files of a listing that are read. Raises UsageError for a request
    that cannot be met anywhere, SourceError where the outside world did not give what it needs.
    """
    if source not in _SOURCES:
        known = ", ".join(_SOURCES)
        raise UsageError(f"the source {quoted(source)} does not exist; the sources are {known}")
    target = parse_model(requested)
    of_model = partial(_of_model, source=source, token=token, say=say)
    if isinstance(target, Path):
        found = local_folder.read(target, requested, choose)
    else:
        found = of_model(target, choose=choose)
    from_path = partial(local_folder.read, choose=select_config)
    return with_base_model(found, from_path, partial(of_model, choose=select_config))


def _of_model(
    target: HubModel, *, source: str, token: str | None, say: Say, choose: Chooser
) -> Snapshot:
    if choose is not select_config and target.place is not None:
        choose = partial(select_place, place=target.place)
    elif choose is not select_config and target.tag is not None:
        choose = partial(select_tagged, tag=target.tag)
    paper = bundled.read_paper(target)
    if paper is not None:
        say(f"{target.id}: {paper.origin}")
        return paper
    if source == "cache":
        return huggingface_cache.read(target, choose)
    if source == "bundled":
        return bundled.read(target)
    require_address_space(_HTTP_SPACE)
    with reading_variables():
        from auditor.downloader import hub  # noqa: PLC0415 - 0.1 s that a folder never needs
    try:
        return hub.read(target, token, say, choose)
    except SourceError as error:
        if error.reason not in _NO_ANSWER:
            raise
        if source == "auto":
            return _stand_in(target, error, say, choose)
        raise SourceError(error.reason, f"{error}; {_WAYS_OUT}") from error


@contextmanager
def reading_variables() -> Iterator[None]:
    """Around an import of huggingface_hub, which reads its variables as it is loaded."""
    try:
        yield
    except ValueError as error:
        detail = "huggingface_hub cannot read an HF_ variable of this machine (HF_ENDPOINT, say)"
        raise UsageError(f"{detail}: {error}") from None


def _stand_in(model: HubModel, why: SourceError, say: Say, choose: Chooser) -> Snapshot:
    """The copy on this machine that is read instead: cached, else shipped."""
    cached = partial(huggingface_cache.read, choose=choose)
    for read, name in ((cached, "the Hugging Face cache"), (bundled.read, "this package")):
        try:
            snapshot = read(model)
        except SourceError as error:
            if error.reason not in {Reason.NOT_CACHED, Reason.NOT_BUNDLED}:
                raise
            continue
        say(f"{model.id}: read from {name} instead of the Hub ({why})")
        return replace(snapshot, origin=f"{snapshot.origin} (the Hub did not answer: {why})")
    detail = f"{why}; neither the Hugging Face cache nor this package has {model.id}"
    raise SourceError(why.reason, detail) from why


def with_base_model(
    snapshot: Snapshot,
    from_path: Callable[[Path, str], Snapshot],
    from_id: Callable[[HubModel], Snapshot],
) -> Snapshot:
    """The snapshot with the base that its adapter names, or with why that is not to be had.

    Only an adapter in a folder may name a path: one from the Hub is a stranger's, and must not
    choose what is read on this machine.
    """
    config = snapshot.config
    if config is None or config.name != ADAPTER_CONFIG or snapshot.base:
        return snapshot
    try:
        settings = parse_object(config.content, config.name)
    except CheckpointError:
        return snapshot  # the audit says what is wrong
    named, revision = settings.get("base_model_name_or_path"), settings.get("revision")
    if not isinstance(named, str) or not named or not isinstance(revision, str | None):
        return snapshot
    local = snapshot.source in {Source.FOLDER, Source.FILE} and os.path.isdir(named)  # noqa: PTH112 - Path.is_dir raises
    try:
        if local:
            found = from_path(Path(named), named)
        else:
            at = f"@{revision}" if revision else ""
            found = from_id(parse_id(f"{named}{at}"))
    except (SourceError, UsageError) as error:
        reason = error.reason if isinstance(error, SourceError) else Reason.NOT_FOUND
        base = BaseModel(model=named, reason=reason, detail=str(error))
        return replace(snapshot, base=base)
    return replace(snapshot, base=_base(found), fetched=snapshot.fetched.plus(found.fetched))


def _base(found: Snapshot) -> BaseModel:
    if found.config is None or found.config.name != CONFIG:
        detail = f"{found.model} has no {CONFIG}: it is not a whole model itself"
        return BaseModel(model=found.model, reason=Reason.NO_CONFIG, detail=detail)
    return BaseModel(
        model=found.model, commit=found.commit, origin=found.origin, config=found.config
    )
