"""Compare a statement with the model that it is about, which is audited again."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert
from msgspec.structs import astuple, replace

from auditor.bounded.json_text import MAX_VALUES, load_object
from auditor.checkpoint.hub_listing import id_fault
from auditor.checkpoint.selecting import name_fault
from auditor.checkpoint.snapshot import Sha1, Sha256, Size
from auditor.downloader.local_file import git_blob_id
from auditor.errors import CheckpointError
from auditor.messages import quoted
from auditor.publishing.signature import SignatureError, envelope_of
from auditor.publishing.statement import (
    MAX_STATEMENT,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    canonical,
)
from auditor.version import VERSION

# Keys of the audit that are compared only if both audits read from the same kind of source: of a
# folder, more files are read than of the Hub.
_OF_SOURCE = {"unchecked", "companions"}


class _File(Struct, frozen=True, forbid_unknown_fields=True):
    """The entry of a file in a statement."""

    name: str
    size: Size | None
    sha256: Sha256 | None
    gitBlob: Sha1 | None  # noqa: N815 - in-toto's name of the digest
    read: str | None


class _Predicate(Struct, frozen=True, forbid_unknown_fields=True):
    """The predicate of a statement, as statement.schema.json describes it."""

    auditor: dict[str, str]
    model: str | None
    commit: Sha1 | None
    source: str
    asClass: str | None  # noqa: N815 - written as in-toto writes keys
    files: tuple[_File, ...]
    audit: dict[str, Any]


class Statement(Struct, frozen=True, kw_only=True):
    """A statement that was read from a file, whose signature is not checked yet."""

    content: bytes  # canonical, so a changed byte is a changed value
    bundle: Mapping[str, Any] | None  # the bundle around it; None: it is not signed
    predicate: _Predicate

    @property
    def model(self) -> str | None:
        """The Hub id and commit to audit; None if the statement is about a folder."""
        if self.predicate.model is None or self.predicate.commit is None:
            return None
        return f"{self.predicate.model}@{self.predicate.commit}"


class Verification(Struct, frozen=True, kw_only=True):
    """The result of a comparison, as sentences."""

    differences: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()  # what could not be compared
    notes: tuple[str, ...] = ()


def read_statement(content: bytes) -> Statement:
    """Read a statement or a bundle; raise SignatureError if `audit attest` did not write it."""
    try:
        outer = _parsed(content)
        is_signed = "dsseEnvelope" in outer
        payload = envelope_of(outer).payload if is_signed else content
        statement = _parsed(payload) if is_signed else outer
        if (statement["_type"], statement["predicateType"]) != (STATEMENT_TYPE, PREDICATE_TYPE):
            raise SignatureError(f"its predicateType is not {PREDICATE_TYPE}")
        predicate = convert(statement["predicate"], _Predicate)
        subject = [
            {"name": file.name, "digest": {"sha256": file.sha256}}
            for file in predicate.files
            if file.sha256
        ]
        if statement != {
            "_type": STATEMENT_TYPE,
            "subject": subject,
            "predicateType": PREDICATE_TYPE,
            "predicate": statement["predicate"],
        }:
            raise SignatureError("its subject is not the files in its predicate")
    except (CheckpointError, KeyError, ValidationError) as error:
        raise SignatureError(f"it is not a statement of audit attest: {error}") from None
    if fault := predicate.model is not None and id_fault(predicate.model):
        raise SignatureError(f"it names the model {quoted(predicate.model or '')}: {fault}")
    if fault := next(filter(None, (name_fault(file.name) for file in predicate.files)), None):
        raise SignatureError(f"it names a file that cannot be read: {fault}")
    return Statement(content=payload, bundle=outer if is_signed else None, predicate=predicate)


def _parsed(content: bytes) -> dict[str, Any]:
    """Parse an object in canonical form, in which each value has one text."""
    value = load_object(content, "the statement", size=MAX_STATEMENT, values=MAX_VALUES).value
    if canonical(value) != content:
        raise SignatureError("its bytes are not in the form that audit attest writes")
    return value


def compare(
    stated: Statement, observed: Statement, folder: Path | None, *, is_checked: bool
) -> Verification:
    """Compare a statement with one that was made now, of files in `folder` or of the Hub.

    `is_checked` is whether a signature was verified, which proves the model's name, its commit and
    the version. Raise SourceError if a file cannot be read.
    """
    ours, theirs = observed.predicate, stated.predicate
    notes: tuple[str, ...] = ()
    if is_checked and ours.auditor != theirs.auditor:
        notes = (f"hf-audit {theirs.auditor.get('version', '')} made it, this is {VERSION}",)
    elif ours.auditor != theirs.auditor:
        return Verification(differences=(f"the version is {VERSION}, as stated {theirs.auditor}",))
    differences, unknown = _of_files(theirs.files, ours.files, folder)
    is_same_place = (ours.source, ours.model) == (theirs.source, theirs.model)
    left_out = set() if is_same_place else _OF_SOURCE
    differences += _of_audit(theirs.audit, ours.audit, left_out)
    if is_same_place and not differences:
        same_version = replace(theirs, auditor=ours.auditor)
        differences += [
            f"{field} is {quoted(str(value))}, as stated {quoted(str(stated_value))}"
            for field, value, stated_value in zip(
                ours.__struct_fields__, astuple(ours), astuple(same_version), strict=True
            )
            if value != stated_value
        ]
    elif not is_checked:
        unknown.append("the model and the commit, because the statement is not signed")
    return Verification(differences=tuple(differences), unknown=tuple(unknown), notes=notes)


def _of_files(
    stated: Sequence[_File], observed: Sequence[_File], folder: Path | None
) -> tuple[list[str], list[str]]:
    """Return a sentence for each file that differs, and for each that cannot be compared."""
    differences, unknown = [], []
    by_name = {file.name: file for file in observed}
    for file in stated:
        other = by_name.pop(file.name, None)
        if other is None:
            differences.append(f"{quoted(file.name)} is missing")
        elif file.size != other.size:
            differences.append(f"{quoted(file.name)} has {other.size} bytes, as stated {file.size}")
        elif file.sha256 and other.sha256:
            if file.sha256 != other.sha256:
                differences.append(f"{quoted(file.name)} has another sha256 than stated")
        elif file.gitBlob and (other.gitBlob or folder):
            blob_id = git_blob_id(folder / file.name) if folder else other.gitBlob
            if file.gitBlob != blob_id:
                differences.append(f"{quoted(file.name)} has another git blob id than stated")
        else:
            unknown.append(f"the bytes of {quoted(file.name)}: no digest of the file is known")
    differences += [f"{quoted(name)} is not in the statement" for name in by_name]
    return differences, unknown


def _of_audit(
    stated: Mapping[str, Any], observed: Mapping[str, Any], left_out: Collection[str]
) -> list[str]:
    """Return a sentence for each key of the audit that came out differently."""
    verdicts = stated.get("verdict"), observed.get("verdict")
    if verdicts[0] != verdicts[1]:
        return [f"the verdict is {quoted(str(verdicts[1]))}, as stated {quoted(str(verdicts[0]))}"]
    before, after = _without(stated, left_out), _without(observed, left_out)
    keys = sorted(key for key in {*before, *after} if before.get(key) != after.get(key))
    return [f"the audit has another value of {quoted(key)} than stated" for key in keys]


def _without(audit: Mapping[str, Any], left_out: Collection[str]) -> dict[str, Any]:
    """Return an audit and its parts without some keys."""
    kept = {key: value for key, value in audit.items() if key not in left_out}
    if isinstance(parts := kept.get("parts"), list):
        kept["parts"] = [_without(part, left_out) for part in parts if isinstance(part, dict)]
    return kept
