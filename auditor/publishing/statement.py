"""The in-toto statement of an audit: the files with their digests, what was read, the result.

The same files, options and version give the same bytes: a statement contains no time, no path of
this machine and no measure of the network. `statement.schema.json` describes the predicate.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import to_builtins
from msgspec.structs import replace

from auditor.audit.guard import outcome_of
from auditor.audit.options import Options
from auditor.audit.pipeline import examine
from auditor.checkpoint.selecting import with_companions
from auditor.checkpoint.skipped import SkippedEntry, SkipReason
from auditor.checkpoint.snapshot import RepoFile, Snapshot, TextFile
from auditor.downloader.digests import LOCAL, read_digests
from auditor.downloader.fetching import fetch
from auditor.errors import PublishError, Reason, SourceError, UsageError
from auditor.formats.as_json import as_object
from auditor.formats.json_values import json_text
from auditor.messages import listed, quoted
from auditor.report import Report, Unaudited
from auditor.version import VERSION

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "https://hf-audit/audit/v1"

# Keys of a report that a statement has. The other keys depend on the machine (paths, traffic), are
# read from other places at each audit (published counts), or can be computed from these.
_AUDIT = (
    *("schema", "component", "verdict", "reason", "target", "model_type", "declared"),
    *("expected", "observed", "residual", "findings", "unchecked", "companions"),
)
_CAUSE = ("cause", "severity", "level", "summary", "explains", "fields", "findings", "evidence")
MAX_STATEMENT = 256 * 1024 * 1024  # bytes of a statement that is read


class Attested(NamedTuple):
    """A statement, the audit that it states, and what was audited."""

    statement: bytes
    outcome: Report | Unaudited
    snapshot: Snapshot


def attest(  # noqa: PLR0913 - one keyword for each choice a caller has
    model: str,
    *,
    target: str | None = None,
    source: str = "hub",
    token: str | None = None,
    without: Path | None = None,
    accept: Callable[[Snapshot], None] = lambda _snapshot: None,
    say: Callable[[str], None],
) -> Attested:
    """Audit a model and state the result; `without` is a file that is not part of the model.

    `accept` is called before any digest is read, and raises an error for what must not be stated.
    Local files are read completely for their sha256; other digests are those of the listing. Raise
    SourceError if the model cannot be read, UsageError if no file has a known sha256.
    """
    snapshot = fetch(model, source=source, token=token, say=say, choose=with_companions)
    accept(snapshot)
    folder = snapshot.folder if snapshot.source in LOCAL else None
    files = tuple(
        file
        for file in snapshot.files
        if folder is None or without is None or not _is_same(folder / file.name, without)
    )
    options = Options(requested=model, target=target)
    alone = replace(snapshot, skipped=())  # the statement names the skipped entries itself
    outcome = outcome_of(
        lambda: examine(alone, options),
        lambda detail: Unaudited(requested=model, reason=Reason.CRASHED, detail=detail),
    )
    if folder is None:
        digests = {file.name: file.sha256 for file in files if file.sha256}
    else:
        digests = read_digests(folder, files, say)
    statement = _statement(snapshot, files, digests, outcome, target)
    return Attested(canonical(statement), outcome, snapshot)


def require_own_files(requested: str, skipped: Iterable[SkippedEntry]) -> None:
    """Raise PublishError if a link leads out of the folder: its target is no file of the model."""
    links = [entry.name for entry in skipped if entry.reason is SkipReason.OUTSIDE]
    if links:
        raise PublishError(
            f"{quoted(requested)} has links out of the folder, expected files of the model: "
            f"{listed(links)}; remove them, or copy the files into the folder (cp -L)"
        )


def canonical(value: Mapping[str, Any]) -> bytes:
    """Encode a JSON object in the only form in which a statement or a bundle is accepted."""
    return f"{json_text(value, indent=1)}\n".encode()


def _is_same(path: Path, other: Path) -> bool:
    """Whether two paths are one entry of one folder; a link to a file is another entry."""
    places = [(os.path.realpath(one.parent), one.name) for one in (path, other)]
    return places[0] == places[1]


def _statement(
    snapshot: Snapshot,
    files: Sequence[RepoFile],
    digests: Mapping[str, str],
    outcome: Report | Unaudited,
    target: str | None,
) -> dict[str, Any]:
    texts = {text.name: text.content for text in _texts(snapshot)}
    companions = ((file.name, file.content) for file in snapshot.companions or ())
    contents = {name: content for name, content in companions if content is not None} | texts
    headers = {header.name for part in _models(snapshot) for header in part.headers}
    headers |= {one.name for one in (*snapshot.torch_copies, *snapshot.pickles)}
    entries = [_file(file, digests.get(file.name), contents, headers) for file in files]
    partly = [one for one in entries if one["read"] == "part" and one["name"] in texts]
    changed = [one["name"] for one in partly if one["sha256"] or one["gitBlob"]]
    if changed:
        detail = f"{listed(changed)}: the digest is not that of the bytes that the audit read"
        raise SourceError(Reason.UNREADABLE, f"{detail}; run it again")
    subject = [
        {"name": entry["name"], "digest": {"sha256": entry["sha256"]}}
        for entry in entries
        if entry["sha256"]
    ]
    if not subject:
        raise UsageError(
            f"no sha256 of a file of {quoted(snapshot.model)} is known; attest a folder or a model"
            " of the Hub"
        )
    return {
        "_type": STATEMENT_TYPE,
        "subject": subject,
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "auditor": {"name": "hf-audit", "version": VERSION},
            "model": snapshot.model if snapshot.commit else None,
            "commit": snapshot.commit,
            "source": "local" if snapshot.source in LOCAL else "listing",
            "asClass": target,
            "files": entries,
            "skipped": to_builtins(snapshot.skipped),
            "audit": _audit(as_object(outcome)),
        },
    }


def _models(snapshot: Snapshot) -> tuple[Any, ...]:
    """Return the objects with fields `config`, `index` and `headers`: the root and components."""
    return (snapshot, *snapshot.components)


def _texts(snapshot: Snapshot) -> Iterator[TextFile]:
    """Yield each text that was read completely and is kept byte for byte."""
    texts = [snapshot.packing, snapshot.manifest]
    for part in _models(snapshot):
        texts += [part.config, part.index, part.settings]
    return filter(None, texts)


def _file(
    file: RepoFile, digest: str | None, contents: Mapping[str, bytes], headers: set[str]
) -> dict[str, Any]:
    """Return the entry of a file; `read` says which part of it the audit has read."""
    read = "header" if file.name in headers else None
    if (content := contents.get(file.name)) is not None:
        read = "part"
        if digest == sha256(content).hexdigest():
            read = "complete"
        elif digest is None and file.blob_id == _blob_id(content):
            read, digest = "complete", sha256(content).hexdigest()
    blob_id = None if digest else file.blob_id
    return {
        "name": file.name,
        "size": file.size,
        "sha256": digest,
        "gitBlob": blob_id,
        "read": read,
    }


def _blob_id(content: bytes) -> str:
    from hashlib import sha1  # noqa: PLC0415 - git's own digest, only for files of the Hub

    return sha1(b"blob %d\0%b" % (len(content), content), usedforsecurity=False).hexdigest()


def _audit(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a JSON report that a statement has."""
    return {
        **{key: report[key] for key in _AUDIT},
        "diagnosis": [{key: cause[key] for key in _CAUSE} for cause in report["diagnosis"]],
        "parts": [_audit(part) for part in report["parts"]],
    }
