"""The Hub's listing of a model: its id, commit, files and published sizes."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from auditor.checkpoint.selecting import name_fault
from auditor.checkpoint.snapshot import PublishedText, RepoFile
from auditor.errors import Reason, SourceError
from auditor.messages import described, quoted

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LARGEST = 2**63
_LONGEST_PART = 96  # characters of an id, as huggingface_hub.utils.validate_repo_id has it


class Listing(NamedTuple):
    """A model at one commit: its id after renames, and all files."""

    model_id: str
    commit: str
    files: tuple[RepoFile, ...]  # sorted by name
    published: tuple[PublishedText, ...] = ()  # sizes that it states, sorted by name
    base: str | None = None  # the base model in the model card


def listing_of(answer: Mapping[str, object], model_id: str) -> Listing:
    """Read the Hub's answer about a model or an entry of its list; raise SourceError for others."""
    found, commit, siblings = (answer.get(key) for key in ("id", "sha", "siblings"))
    if not isinstance(found, str) or id_fault(found):
        raise _odd(model_id, f"as its id {described(found)}")
    if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        raise _odd(model_id, f"as its commit {described(commit)}, expected 40 hex digits")
    if not isinstance(siblings, list):
        raise _odd(model_id, f"as its files {described(siblings)}, expected a list")
    files = {file.name: file for entry in siblings if (file := _repo_file(model_id, entry))}
    return Listing(
        found,
        commit,
        tuple(files[name] for name in sorted(files)),
        published_in(answer),
        _base(answer),
    )


def _base(answer: Mapping[str, object]) -> str | None:
    """Return the base model in the model card; None without one or with several."""
    card = answer.get("cardData")
    base = card.get("base_model") if isinstance(card, dict) else None
    if isinstance(base, list) and len(base) == 1:
        base = base[0]
    return base if isinstance(base, str) and id_fault(base) is None else None


def _repo_file(model_id: str, entry: object) -> RepoFile:
    name, size = (
        (entry.get("rfilename"), entry.get("size")) if isinstance(entry, dict) else (None, None)
    )
    if not isinstance(name, str) or name_fault(name):
        raise _odd(model_id, f"a file named {described(name)}")
    if size is not None and (type(size) is not int or not 0 <= size < _LARGEST):
        raise _odd(model_id, f"as the size of {quoted(name)} {described(size)}")
    digest, blob = _digests(entry)
    return RepoFile(name=name, size=size, sha256=digest, blob_id=blob)


def _digests(entry: object) -> tuple[str | None, str | None]:
    """Return the sha256 and the git blob id of a file; git's blob of an LFS file is a pointer."""
    known = entry if isinstance(entry, dict) else {}
    lfs, blob = known.get("lfs"), known.get("blobId")
    if isinstance(lfs, dict):
        digest = lfs.get("sha256")
        return digest if isinstance(digest, str) and _SHA256.fullmatch(digest) else None, None
    return None, blob if isinstance(blob, str) and _COMMIT.fullmatch(blob) else None


def _odd(model_id: str, what: str) -> SourceError:
    return SourceError(Reason.BAD_RESPONSE, f"the Hub's listing of {model_id} gives {what}")


# --- ids ----------------------------------------------------------------------------------------


def id_fault(model_id: str) -> str | None:
    """Return what is wrong with a Hub id; None exactly if `validate_repo_id` accepts it."""
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
_OF_CARDS = (
    *("parameters", "params", "num_parameters", "n_parameters", "total_parameters"),
    *("parameter_count", "model_size", "model-size", "size"),
)
_LONGEST = 40  # characters of a number with its unit


def published_in(answer: Mapping[str, object]) -> tuple[PublishedText, ...]:
    """Return the published sizes, sorted by key; anything else under these keys is left out."""
    found = (*_counted_by_hub(answer.get("safetensors")), *_sizes_in_card(answer.get("cardData")))
    return tuple(sorted(found, key=lambda one: one.name))


def _counted_by_hub(of_files: object) -> Iterator[PublishedText]:
    """Yield the Hub's count of parameters; older answers have a count for each dtype only."""
    if not isinstance(of_files, dict):
        return
    total, by_dtype = of_files.get("total"), of_files.get("parameters")
    key = "safetensors.total"
    if total is None and isinstance(by_dtype, dict) and by_dtype:
        counts = [count for count in by_dtype.values() if type(count) is int]
        total, key = sum(counts) if len(counts) == len(by_dtype) else None, "safetensors.parameters"
    if type(total) is int and 0 < total < _LARGEST:
        yield PublishedText(name=key, text=str(total))


def _sizes_in_card(card: object) -> Iterator[PublishedText]:
    for key in _OF_CARDS if isinstance(card, dict) else ():
        value = card.get(key) if isinstance(card, dict) else None
        if type(value) is int and not 0 < value < _LARGEST:
            continue
        if type(value) in {int, str} and 0 < len(str(value)) <= _LONGEST:
            yield PublishedText(name=f"cardData.{key}", text=str(value))
