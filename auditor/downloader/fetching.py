"""`fetch`: read the model that a user named, from any source, and the base of an adapter."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from auditor.bounded.json_text import converted
from auditor.checkpoint.filenames import CONFIG, Chooser
from auditor.checkpoint.selecting import (
    ADAPTER_CONFIG,
    select,
    select_config,
    select_place,
    select_tagged,
)
from auditor.checkpoint.snapshot import BaseModel, Snapshot, Source
from auditor.downloader import bundled, local_folder, reading_variables
from auditor.downloader.model_argument import HubModel, StoreAddress, parse_id, parse_model
from auditor.errors import CheckpointError, Reason, SourceError, UsageError
from auditor.machine import require_address_space
from auditor.messages import quoted

_SOURCES = ("auto", "hub", "cache", "bundled")
Say = Callable[[str], None]

# Reasons to read a copy on this machine instead: the Hub did not answer, or its answer is faulty.
# After an answer such as "gated" or "not found" no copy is read.
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


# Bytes of address space that an audit of the Hub needs besides Python's. The HTTP library, which is
# written in Rust, ends the process if it gets no memory.
_HTTP_SPACE = 64 * 1024 * 1024

_WAYS_OUT = "without it, --source cache, --source bundled or --source auto may have the model"


def ignore_message(_: str) -> None:
    """Do nothing with a message."""


def fetch(
    requested: str,
    *,
    source: str = "hub",
    token: str | None = None,
    say: Say = ignore_message,
    choose: Chooser = select,
) -> Snapshot:
    """Read the config, the index and the headers of one checkpoint, without its weights.

    `requested` is a path if that path exists, else the address of a store, or a Hub id with an
    optional `@revision`.
    The snapshot of an adapter has the config of its base, or the reason why that is missing.
    A model that only a paper describes consists of its config, whatever the source.
    `source` is where an id is looked up. `say` is called with a line for each wait, and for a copy
    that is read instead of the Hub's files. `choose` selects the files of a listing to read. Raise
    UsageError for an impossible request, SourceError if the source does not have the model.
    """
    if source not in _SOURCES:
        sources = ", ".join(_SOURCES)
        raise UsageError(f"the source {quoted(source)} does not exist; the sources are {sources}")
    target = parse_model(requested)
    read_model = partial(_read_model, source=source, token=token, say=say)
    if isinstance(target, Path):
        snapshot = local_folder.read(target, requested, choose)
    elif isinstance(target, StoreAddress):
        snapshot = _read_store(target, token, say, choose)
    else:
        snapshot = read_model(target, choose=choose)
    from_path = partial(local_folder.read, choose=select_config)
    # The config of a base may come from the cache: the report says so.
    read_base = partial(read_model, source="auto" if source == "hub" else source)
    return with_base_model(snapshot, from_path, partial(read_base, choose=select_config))


def _read_model(
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
        return local_folder.read_cached(target, choose)
    if source == "bundled":
        return bundled.read(target)
    require_address_space(_HTTP_SPACE)
    with reading_variables():
        from auditor.downloader import hub  # noqa: PLC0415 - takes 0.1 s, and a folder does not need it
    try:
        return hub.read(target, token, say, choose)
    except SourceError as error:
        if error.reason not in _NO_ANSWER:
            raise
        if source == "auto":
            return _stand_in(target, error, say, choose)
        raise SourceError(error.reason, f"{error}; {_WAYS_OUT}") from error


def _read_store(
    address: StoreAddress, token: str | None, say: Callable[[str], None], choose: Chooser
) -> Snapshot:
    with reading_variables():
        from auditor.downloader import store  # noqa: PLC0415 - as above
    return store.read(address, token, say, choose)


def _stand_in(model: HubModel, why: SourceError, say: Say, choose: Chooser) -> Snapshot:
    """Return a model's cached or shipped snapshot, because the Hub failed with the error `why`."""
    cached = partial(local_folder.read_cached, choose=choose)
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


# Keys of which a config in a folder has one: an adapter may name any folder, and must not have
# another program's config.json copied into a snapshot.
_OF_A_MODEL = frozenset(("model_type", "architectures"))


_IN_A_CACHE = re.compile(r"models--([^/\\-]+)--([^/\\]+)")


class _AdapterConfig(Struct):
    base_model_name_or_path: str | None = None
    revision: str | None = None


def with_base_model(
    snapshot: Snapshot,
    from_path: Callable[[Path, str], Snapshot],
    from_id: Callable[[HubModel], Snapshot],
) -> Snapshot:
    """Add the base that an adapter names to its snapshot, or the reason why it cannot be read.

    Only an adapter in a folder may name a path: an adapter from the Hub is untrusted, and must not
    choose what is read on this machine. If the base cannot be read, a config at hand stands in for
    it, and `detail` of the base contains in place of what.
    """
    config = snapshot.config
    if config is None or config.name != ADAPTER_CONFIG or snapshot.base:
        return snapshot
    try:
        settings = converted(config.object, _AdapterConfig)
    except CheckpointError:
        return snapshot  # the audit reports the fault
    name, revision = settings.base_model_name_or_path, settings.revision
    is_local = snapshot.source in {Source.FOLDER, Source.FILE}
    missing_base: BaseModel | None = None
    try:
        if is_local and name and os.path.isdir(name):  # noqa: PTH112 - Path.is_dir raises
            base = from_path(Path(name), name)
        elif name:
            base = from_id(parse_id(f"{name}@{revision}" if revision else name))
        else:
            base = None
    except (SourceError, UsageError) as error:
        reason = error.reason if isinstance(error, SourceError) else Reason.NOT_FOUND
        missing_base = BaseModel(model=name or "", reason=reason, detail=str(error))
        base = None
    if base is not None:
        return replace(snapshot, base=_base(base), fetched=snapshot.fetched.plus(base.fetched))
    for read in _places_at_hand(snapshot, name or "", from_path, from_id):
        with suppress(SourceError, UsageError):
            base = read()
            if (found := _base(base)).config is not None:
                instead = f"in place of {quoted(name)}" if name else f"{ADAPTER_CONFIG} names none"
                fetched = snapshot.fetched.plus(base.fetched)
                return replace(snapshot, base=replace(found, detail=instead), fetched=fetched)
    return replace(snapshot, base=missing_base)


def _places_at_hand(
    snapshot: Snapshot,
    name: str,
    from_path: Callable[[Path, str], Snapshot],
    from_id: Callable[[HubModel], Snapshot],
) -> Iterator[Callable[[], Snapshot]]:
    """Yield how to read each config that may be the base's, if the base itself cannot be read.

    A path in a Hugging Face cache contains the Hub id; a folder may lie inside the adapter's
    folder or beside it; and trainers write the base's config.json into the adapter's folder.
    """
    if cached := _IN_A_CACHE.search(name):
        yield lambda: from_id(parse_id(f"{cached[1]}/{cached[2]}"))
    folder = snapshot.folder if snapshot.source in {Source.FOLDER, Source.FILE} else None
    last = re.split(r"[/\\]", name.rstrip("/\\"))[-1]
    if folder is not None and last.strip("."):
        for path in (folder / last, folder.parent / last):
            if os.path.isdir(path):  # noqa: PTH112 - likewise
                yield partial(from_path, path, str(path))
    if any(file.name == CONFIG for file in snapshot.files):
        if folder is not None:
            yield partial(from_path, folder, str(folder))
        elif snapshot.commit is not None and snapshot.source is not Source.CACHE:
            yield lambda: from_id(parse_id(f"{snapshot.model}@{snapshot.commit}"))


def _base(base: Snapshot) -> BaseModel:
    detail = None
    if base.config is None or base.config.name != CONFIG:
        detail = f"{base.model} has no {CONFIG}: it is not a complete model"
    elif base.source is Source.FOLDER and _OF_A_MODEL.isdisjoint(base.config.values):
        detail = f"the {CONFIG} of {base.model} has no {' or '.join(sorted(_OF_A_MODEL))}"
    if detail:
        return BaseModel(model=base.model, reason=Reason.NO_CONFIG, detail=detail)
    return BaseModel(model=base.model, commit=base.commit, origin=base.origin, config=base.config)
