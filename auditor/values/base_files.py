"""`--base`: compare the weight files of a model with those of a base, by sha256 of whole files.

The digests come from the Hub's listings, or are computed from local files.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from auditor.checkpoint.selecting import ADAPTER_CONFIG, is_weights, select_config
from auditor.checkpoint.snapshot import Fetched, RepoFile, Snapshot
from auditor.downloader.fetching import fetch
from auditor.downloader.local_file import file_sha256
from auditor.downloader.model_argument import HubModel, parse_model
from auditor.errors import SourceError, UsageError
from auditor.findings import EqualsBase, OfFiles
from auditor.findings.ignore import Ignore
from auditor.messages import listed, quoted
from auditor.report import Report, Unaudited
from auditor.values.adding import with_more_findings

Digest = Callable[[RepoFile], str | None]  # returns the sha256 of a file, None if unknown


class SharedFiles(NamedTuple):
    """The names of the audited weight files, by the result of the comparison."""

    equal: tuple[str, ...]  # a file of the base has the same bytes
    other: tuple[str, ...]  # no file of the base has the same bytes
    unknown: tuple[str, ...]  # a digest is missing


def files_of_base(
    files: Sequence[RepoFile],
    base: Sequence[RepoFile],
    *,
    digest: Digest,
    digest_of_base: Digest,
) -> SharedFiles:
    """Compare the files with the base's files; `digest` is called only if sizes are equal."""
    weights = [file for file in base if is_weights(file.name)]
    equal: list[str] = []
    other: list[str] = []
    unknown: list[str] = []
    for file in files:
        candidates = [one for one in weights if len({one.size, file.size} - {None}) < 2]  # noqa: PLR2004
        own_digest = digest(file) if candidates else None
        base_digests = [digest_of_base(one) for one in candidates]
        if own_digest is not None and own_digest in base_digests:
            equal.append(file.name)
        elif not candidates or (own_digest is not None and None not in base_digests):
            other.append(file.name)
        else:
            unknown.append(file.name)
    return SharedFiles(tuple(equal), tuple(other), tuple(unknown))


def same_files(files: Sequence[RepoFile]) -> Iterator[str]:
    """Yield a line for each group of weight files with equal bytes according to the listing."""
    groups: dict[str, list[str]] = {}
    for file in files:
        if file.sha256 is not None and is_weights(file.name):
            groups.setdefault(file.sha256, []).append(file.name)
    for names in groups.values():
        if len(names) > 1:
            yield f"{listed(names)} have the same bytes (sha256)"


class ListedModel(NamedTuple):
    """The files of a model, on this machine or on the Hub."""

    name: str
    files: Sequence[RepoFile]
    commit: str | None = None
    folder: Path | None = None
    fetched: Fetched = Fetched()


class BaseReader:
    """A comparison of an audit's models with a base model, whose files are listed once.

    `base` is the name from the user. If it is None, the base is the one that the model card names,
    if the listing has the card; then a base that cannot be read does not end the audit.
    """

    def __init__(
        self, base: str | None, *, source: str, token: str | None, say: Callable[[str], None]
    ) -> None:
        self._base = base
        self._source = source
        self._token = token
        self._say = say
        self._known: dict[str, ListedModel] = {}

    def __call__(
        self, outcome: Report | Unaudited, snapshot: Snapshot, ignore: tuple[Ignore, ...]
    ) -> tuple[Report | Unaudited, Fetched]:
        """Return the outcome with the result of the comparison, and the cost of the requests."""
        notes = tuple(same_files(snapshot.files))
        outcome = replace(outcome, notes=(*outcome.notes, *notes)) if notes else outcome
        name = self._base if self._base is not None else snapshot.card_base
        config = snapshot.config
        is_adapter = config is not None and config.name.endswith(ADAPTER_CONFIG)
        if name is None or is_adapter or not snapshot.headers or name == snapshot.model:
            return outcome, Fetched()
        is_new = name not in self._known
        try:
            base = self._listed(name)
            shared = _compared(snapshot, base)
        except (SourceError, UsageError) as error:
            if self._base is not None and isinstance(error, SourceError):
                return outcome.as_unaudited(error.reason, str(error)), Fetched()
            if self._base is not None:
                raise
            why = f"the base {quoted(name)}, which the card names: {error}"
            return replace(outcome, unchecked=(*outcome.unchecked, why)), Fetched()
        cost = base.fetched if is_new else Fetched()
        outcome = replace(outcome, fetched=outcome.fetched.plus(cost))
        return _with_result(outcome, shared, base, ignore), cost

    def _listed(self, name: str) -> ListedModel:
        """List the files of the base; raise SourceError or UsageError if that fails."""
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def _read(self, name: str) -> ListedModel:
        # A card is untrusted: the name in it is never a path on this machine.
        target = parse_model(name) if self._base is not None else HubModel(id=name)
        if isinstance(target, Path) or self._source == "cache":
            base = fetch(name, source=self._source, say=self._say, choose=select_config)
            return ListedModel(base.model, base.files, base.commit, base.folder)
        from auditor.downloader.hub import read_listing  # noqa: PLC0415 - 0.1 s

        listing, fetched = read_listing(target, self._token, self._say)
        return ListedModel(listing.model_id, listing.files, listing.commit, fetched=fetched)


def _compared(snapshot: Snapshot, base: ListedModel) -> SharedFiles:
    audited = {head.name for head in snapshot.headers}
    files = [file for file in snapshot.files if file.name in audited]
    return files_of_base(
        files,
        base.files,
        digest=digests(snapshot.folder),
        digest_of_base=digests(base.folder),
    )


def digests(folder: Path | None) -> Digest:
    """Return a function that returns a file's listed digest, or computes it from the local file.

    Each local file is read once. The function raises SourceError if the file was replaced or
    changed since it was listed.
    """
    digest_by_path: dict[str, str] = {}

    def digest(file: RepoFile) -> str | None:
        if file.sha256 is not None or folder is None:
            return file.sha256
        if file.name not in digest_by_path:
            digest_by_path[file.name] = file_sha256(folder / file.name, expected=file.state)
        return digest_by_path[file.name]

    return digest


def _with_result(
    outcome: Report | Unaudited,
    shared: SharedFiles,
    base: ListedModel,
    ignore: tuple[Ignore, ...],
) -> Report | Unaudited:
    title = f"{quoted(base.name)}{f' @ {base.commit[:12]}' if base.commit else ''}"
    new: list[OfFiles] = []
    if shared.equal and not (shared.other or shared.unknown):
        count = len(shared.equal)
        subject = f"all {count:,} weight files have" if count > 1 else "the weight file has"
        reason = f"{subject} the same sha256 as in {title}"
        new.append(EqualsBase(files=shared.equal, reason=reason))
    outcome = with_more_findings(outcome, new, ignore, notes=_notes(shared, title))
    if not shared.unknown:
        return outcome
    why = f"the base: digests of {listed(shared.unknown)} or of {title} are unknown"
    return replace(outcome, unchecked=(*outcome.unchecked, why))


def _notes(shared: SharedFiles, title: str) -> Iterator[str]:
    count = sum(map(len, shared))
    if shared.equal and len(shared.equal) < count:
        names = listed(shared.equal)
        yield f"{len(shared.equal):,} of {count:,} weight files are equal to {title}'s: {names}"
    elif len(shared.other) == count:
        yield f"no weight file is equal to one of {title}"
