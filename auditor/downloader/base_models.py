"""The base model of an adapter: of it only the config is read, wherever the adapter came from."""

import os
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from auditor.checkpoint.selecting import ADAPTER_CONFIG
from auditor.checkpoint.selection import CONFIG
from auditor.checkpoint.snapshot import BaseModel, Snapshot, Source
from auditor.containers.bounded_json import parse_object
from auditor.downloader.model_argument import HubModel, parse_id
from auditor.errors import CheckpointError, Reason, SourceError, UsageError


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
    except SourceError as error:
        base = BaseModel(model=named, reason=error.reason, detail=str(error))
        return replace(snapshot, base=base)
    except UsageError as error:
        base = BaseModel(model=named, reason=Reason.NOT_FOUND, detail=str(error))
        return replace(snapshot, base=base)
    return replace(snapshot, base=_base(found), fetched=snapshot.fetched.plus(found.fetched))


def _base(found: Snapshot) -> BaseModel:
    if found.config is None or found.config.name != CONFIG:
        detail = f"{found.model} has no {CONFIG}: it is not a whole model itself"
        return BaseModel(model=found.model, reason=Reason.NO_CONFIG, detail=detail)
    return BaseModel(
        model=found.model, commit=found.commit, origin=found.origin, config=found.config
    )
