"""Compare a statement with the model that it is about, which is audited again."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct, ValidationError, convert
from msgspec.structs import astuple, replace

from auditor.bounded.json_text import MAX_VALUES, load_object
from auditor.checkpoint.hub_listing import id_fault
from auditor.checkpoint.selecting import name_fault
from auditor.checkpoint.skipped import SkippedEntry, SkipReason, skipped_lines
from auditor.checkpoint.snapshot import Sha1, Sha256, Size, Snapshot
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
    skipped: tuple[SkippedEntry, ...]
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
    stated: Statement, observed: Statement, snapshot: Snapshot, *, is_checked: bool, is_named: bool
) -> Verification:
    """Compare a statement with one that was made now, of the snapshot.

    `is_checked` is whether a signature was verified, which proves the model's name, its commit and
    the version; `is_named` is whether the user named the model: else it is the stated one, under
    whatever name the Hub has it now. Raise SourceError if a file cannot be read.
    """
    ours, theirs = observed.predicate, stated.predicate
    notes: list[str] = []
    if is_checked and ours.auditor != theirs.auditor:
        notes.append(f"hf-audit {theirs.auditor.get('version', '')} made it, this is {VERSION}")
    elif ours.auditor != theirs.auditor:
        return Verification(differences=(f"the version is {VERSION}, as stated {theirs.auditor}",))
    if not is_named and ours.model != theirs.model and ours.commit == theirs.commit:
        notes.append(f"{quoted(str(theirs.model))} is named {quoted(str(ours.model))} now")
        ours = replace(ours, model=theirs.model)
    compared = (
        _of_model(theirs, ours),
        _of_files(theirs.files, ours.files, snapshot),
        _of_skipped(theirs, ours),
    )
    differences = [line for one in compared for line in one.differences]
    unknown = [line for one in compared for line in one.unknown]
    notes += [line for one in compared for line in one.notes]
    is_same_place = (ours.source, ours.model) == (theirs.source, theirs.model)
    left_out = set() if is_same_place else _OF_SOURCE
    differences += _of_audit(theirs.audit, ours.audit, left_out)
    if is_same_place and not differences:
        same_version = replace(theirs, auditor=ours.auditor, skipped=ours.skipped)
        differences += [
            f"{field} is {quoted(str(value))}, as stated {quoted(str(stated_value))}"
            for field, value, stated_value in zip(
                ours.__struct_fields__, astuple(ours), astuple(same_version), strict=True
            )
            if value != stated_value
        ]
    elif not is_checked:
        unknown.append("the model and the commit, because the statement is not signed")
    return Verification(differences=tuple(differences), unknown=tuple(unknown), notes=tuple(notes))


def _of_model(stated: _Predicate, observed: _Predicate) -> Verification:
    """Compare the model and the commit; name them, and the sources, if one side has none."""
    differences: list[str] = []
    notes: list[str] = []
    for what in ("model", "commit", "source"):
        names = getattr(stated, what), getattr(observed, what)
        shown = [quoted(name) if name else "none" for name in names]
        line = f"the {what} is {shown[1]}, as stated {shown[0]}"
        if names[0] != names[1]:
            (notes if None in names or what == "source" else differences).append(line)
    return Verification(differences=tuple(differences), notes=tuple(notes))


def _of_files(
    stated: Sequence[_File], observed: Sequence[_File], snapshot: Snapshot
) -> Verification:
    """Return a sentence for each file that differs, and for each that cannot be compared."""
    differences, unknown = [], []
    by_name = {file.name: file for file in observed}
    states = {file.name: file.state for file in snapshot.files}
    folder = snapshot.folder
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
            blob_id = other.gitBlob
            if folder:
                blob_id = git_blob_id(folder / file.name, expected=states[file.name])
            if file.gitBlob != blob_id:
                differences.append(f"{quoted(file.name)} has another git blob id than stated")
        else:
            unknown.append(f"the bytes of {quoted(file.name)}: no digest of the file is known")
    differences += [f"{quoted(name)} is not in the statement" for name in by_name]
    return Verification(differences=tuple(differences), unknown=tuple(unknown))


def _of_skipped(stated: _Predicate, observed: _Predicate) -> Verification:
    """Name the entries of a folder that are no files; those that it gained are differences.

    Notes about a download belong to no model. A clone of a commit has git's own folder, in which
    anything may be.
    """
    gained, unknown, known = [], [], []
    for entry in observed.skipped:
        if entry.reason is SkipReason.DOWNLOAD or entry in stated.skipped:
            known.append(entry)
        elif entry.reason is SkipReason.GIT and stated.source != observed.source:
            unknown.append(entry)
        else:
            gained.append(entry)
    return Verification(
        differences=tuple(f"not in the statement, {line}" for line in skipped_lines(gained)),
        unknown=skipped_lines(unknown),
        notes=skipped_lines(known),
    )


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
