"""The Hub's listing of a model: its id, commit, files and published sizes."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from msgspec import Meta, Struct, field

from auditor.bounded.json_text import converted, decoded, usable_fields
from auditor.checkpoint.selecting import name_fault
from auditor.checkpoint.snapshot import (
    ModelCard,
    PublishedText,
    RepoFile,
    Sha1,
    Sha256,
    Size,
    Snapshot,
    Source,
)
from auditor.errors import CheckpointError, Reason, SourceError
from auditor.messages import quoted

_LONGEST_PART = 96  # characters of an id, the limit of huggingface_hub.utils.validate_repo_id
_LONGEST_AUTHORS = 200  # characters of the authors of one commit


class Listing(NamedTuple):
    """A model at one commit: its id after renames, and all files."""

    model_id: str
    commit: str
    files: tuple[RepoFile, ...]  # sorted by name
    published: tuple[PublishedText, ...] = ()  # sizes that the listing states, sorted by name
    base: str | None = None  # the base model in the model card
    card: ModelCard | None = None
    pushed: str | None = None  # as of `push_time`


class _File(Struct):
    rfilename: str
    size: Size | None = None
    lfs: Any = None
    blob_id: Any = field(name="blobId", default=None)


class _Digests(Struct):
    sha256: Sha256 | None = None
    blob_id: Sha1 | None = None


class _Card(Struct):
    base_model: str | Annotated[list[str], Meta(min_length=1, max_length=1)] | None = None


_Names = str | Annotated[list[str], Meta(max_length=1000)]


class _CardNames(Struct):
    license: _Names = ""
    datasets: _Names = ""
    base_model: _Names = ""


class _Answer(Struct):
    """The Hub's answer about a model, or an entry of its list."""

    id: str
    sha: Sha1
    siblings: list[_File]
    card: Any = field(name="cardData", default=None)
    safetensors: Any = None
    last_modified: Any = field(name="lastModified", default=None)


_TIME = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.[0-9]{1,9})?Z")


def push_time(last_modified: object) -> str | None:
    """Return the time of the last commit, as 2026-11-25T14:02:11Z; None if it is not a UTC time."""
    match = _TIME.fullmatch(last_modified) if isinstance(last_modified, str) else None
    return f"{match[1]}Z" if match else None


class _Author(Struct):
    user: str | None = None  # on the Hub
    name: str | None = None  # in the commit itself


class _Commit(Struct):
    id: str
    authors: list[_Author] = []


def authors_in(content: bytes, commit: str) -> str | None:
    """Return the authors of the first commit in the Hub's list of commits, as `a; b`.

    Return None if the list cannot be read, begins with another commit or names no author.
    """
    try:
        commits = decoded(content, list[_Commit])
    except CheckpointError:
        return None
    authors = [one for first in commits[:1] if first.id == commit for one in first.authors]
    names = "; ".join(filter(None, ((one.user or one.name or "").strip() for one in authors)))
    cut = f"{names[: _LONGEST_AUTHORS - 1]}\N{HORIZONTAL ELLIPSIS}"
    return (names if len(names) <= _LONGEST_AUTHORS else cut) or None


def listing_of(answer: Mapping[str, object], model_id: str) -> Listing:
    """Read the Hub's description of a model, or raise SourceError if it is malformed."""
    subject = f"the Hub's listing of {model_id}"
    try:
        listed = converted(answer, _Answer, subject)
    except CheckpointError as error:
        raise SourceError(Reason.BAD_RESPONSE, str(error)) from None
    if fault := id_fault(listed.id):
        raise SourceError(Reason.BAD_RESPONSE, f"{subject} has the id {quoted(listed.id)}: {fault}")
    if fault := next(filter(None, (name_fault(file.rfilename) for file in listed.siblings)), None):
        raise SourceError(Reason.BAD_RESPONSE, f"{subject}: {fault}")
    files = {file.rfilename: _repo_file(file) for file in listed.siblings}
    base = usable_fields(listed.card, _Card).base_model
    base = base[0] if isinstance(base, list) else base
    return Listing(
        listed.id,
        listed.sha,
        tuple(files[name] for name in sorted(files)),
        tuple(sorted(_published(listed), key=lambda size: size.name)),
        base if base is not None and id_fault(base) is None else None,
        model_card(listed.card),
        push_time(listed.last_modified),
    )


def snapshot_of(listing: Listing, requested: str, revision: str | None, host: str) -> Snapshot:
    """Return the snapshot of a listed model, for which no file has been read yet."""
    is_renamed = requested != listing.model_id
    return Snapshot(
        model=listing.model_id,
        commit=listing.commit,
        source=Source.HUB,
        origin=f"read from {host}"
        + (f"; {requested} is now {listing.model_id}" if is_renamed else ""),
        files=listing.files,
        # The Hub's counts are of the default branch, whatever the requested revision.
        published=listing.published if revision in {None, "main"} else (),
        card_base=listing.base,
        card=listing.card,
    )


def model_card(card: object) -> ModelCard:
    """Return the names in a card's front matter; values of a wrong type are left out."""
    names = usable_fields(card, _CardNames)
    licenses, datasets, base_models = (
        (value,) if isinstance(value, str) and value else tuple(value)
        for value in (names.license, names.datasets, names.base_model)
    )
    return ModelCard(licenses=licenses, datasets=datasets, base_models=base_models)


def _repo_file(file: _File) -> RepoFile:
    """Return the file with its digest: the sha256 if it is in LFS, else the git blob id."""
    digests = usable_fields(file.lfs or {"blob_id": file.blob_id}, _Digests)
    return RepoFile(
        name=file.rfilename, size=file.size, sha256=digests.sha256, blob_id=digests.blob_id
    )


# --- ids ----------------------------------------------------------------------------------------


def id_fault(model_id: str) -> str | None:
    """Return the fault of a Hub id; None if and only if `validate_repo_id` accepts the id."""
    parts = model_id.split("/")
    if len(parts) > 2:  # noqa: PLR2004 - namespace and name
        return f"an id has one '/' at most (namespace/name), this one has {len(parts) - 1}"
    fault = next((fault for part in parts if (fault := _part_fault(part))), None)
    if fault:
        return fault
    if "--" in model_id or ".." in model_id:
        return "an id has no '--' and no '..'"
    return "an id does not end in '.git'" if model_id.endswith(".git") else None


def _part_fault(part: str) -> str | None:
    if not part:
        return "a part of it is empty"
    if len(part) > _LONGEST_PART:
        return f"a part has {_LONGEST_PART} characters at most, this one has {len(part)}"
    wrong = re.search(r"[^\w.\-]", part, re.ASCII)
    if wrong:
        return f"{quoted(wrong[0])} is not a letter, a digit, '-', '_' or '.'"
    if part[0] in "-." or part[-1] in "-.":
        return f"{quoted(part)} starts or ends with '-' or '.'"
    return None


# --- published sizes ------------------------------------------------------------------------------


# Keys of a model card's front matter that contain a size; the Hub defines no such key.
_SIZE_KEYS = (
    *("parameters", "params", "num_parameters", "n_parameters", "total_parameters"),
    *("parameter_count", "model_size", "model-size", "size"),
)
_Count = Annotated[int, Meta(gt=0, le=2**63 - 1)]


class _ParameterCounts(Struct):
    """The Hub's count of parameters; older answers have only a count for each dtype."""

    total: _Count | None = None
    parameters: dict[str, int] = {}


class _SizeInCard(Struct):
    size: _Count | Annotated[str, Meta(min_length=1, max_length=40)] | None = None


def _published(answer: _Answer) -> Iterator[PublishedText]:
    """Yield the published sizes; leave out values that are not sizes."""
    counts = usable_fields(answer.safetensors, _ParameterCounts)
    total = sum(counts.parameters.values())
    if counts.total:
        yield PublishedText(name="safetensors.total", text=str(counts.total))
    elif 0 < total < 2**63:
        yield PublishedText(name="safetensors.parameters", text=str(total))
    for key in _SIZE_KEYS:
        in_card = answer.card.get(key) if isinstance(answer.card, dict) else None
        if size := usable_fields({"size": in_card}, _SizeInCard).size:
            yield PublishedText(name=f"cardData.{key}", text=str(size))
