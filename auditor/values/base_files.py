"""`--base`: whether the weight files are those of the model that this one is made from.

By sha256 of whole files: what the listings of the Hub say, or what local files come to.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from auditor.checkpoint.selecting import ADAPTER_CONFIG, is_weights, select_config
from auditor.checkpoint.snapshot import Fetched, FileState, RepoFile, Snapshot
from auditor.downloader.digests import file_sha256
from auditor.downloader.fetching import fetch
from auditor.downloader.model_argument import HubModel, parse_model
from auditor.errors import SourceError, UsageError
from auditor.findings import EqualsBase
from auditor.findings.ignore import Ignore
from auditor.messages import listed, quoted
from auditor.report import Report, Unaudited
from auditor.values.adding import with_more_findings

Digest = Callable[[RepoFile], str | None]  # None: not known


class SharedFiles(NamedTuple):
    """The audited weight files, by what is known of them beside the base's."""

    equal: tuple[str, ...]  # the very bytes of a file of the base
    other: tuple[str, ...]  # of other bytes than each of them
    unknown: tuple[str, ...]  # no digest tells


def files_of_base(
    files: Sequence[RepoFile],
    base: Sequence[RepoFile],
    *,
    digest: Digest,
    digest_of_base: Digest,
) -> SharedFiles:
    """Compare files with those of the base; digests are read only if sizes are equal."""
    weights = [one for one in base if is_weights(one.name)]
    equal: list[str] = []
    other: list[str] = []
    unknown: list[str] = []
    for file in files:
        alike = [one for one in weights if None in {one.size, file.size} or one.size == file.size]
        known = digest(file) if alike else None
        theirs = [digest_of_base(one) for one in alike]
        if known is not None and known in theirs:
            equal.append(file.name)
        elif not alike or (known is not None and None not in theirs):
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
            yield f"{listed(names)} hold the same bytes (sha256)"


class ListedModel(NamedTuple):
    """The files of a model, here or on the Hub."""

    name: str
    files: Sequence[RepoFile]
    commit: str | None = None
    folder: Path | None = None
    fetched: Fetched = Fetched()


class BaseReader:
    """Compares the files of the models of one audit with a base's; the listing is asked for once.

    `base` is what the user named; None: what the card names, where the listing tells it. Then a
    base that cannot be had is a line, and no reason to end the audit.
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
        """Return the outcome with the result of the comparison, and its cost."""
        notes = tuple(same_files(snapshot.files))
        outcome = replace(outcome, notes=(*outcome.notes, *notes)) if notes else outcome
        name = self._base if self._base is not None else snapshot.card_base
        config = snapshot.config
        is_adapter = config is not None and config.name.endswith(ADAPTER_CONFIG)
        if name is None or is_adapter or not snapshot.headers or name == snapshot.model:
            return outcome, Fetched()
        asked = name not in self._known
        try:
            base = self._listed(name)
            found = _compared(snapshot, base)
        except (SourceError, UsageError) as error:
            if self._base is not None and isinstance(error, SourceError):
                return outcome.as_unaudited(error.reason, str(error)), Fetched()
            if self._base is not None:
                raise
            why = f"the base: {quoted(name)}, which the card names: {error}"
            return replace(outcome, unchecked=(*outcome.unchecked, why)), Fetched()
        cost = base.fetched if asked else Fetched()
        outcome = replace(outcome, fetched=outcome.fetched.plus(cost))
        return _told(outcome, found, base, ignore), cost

    def _listed(self, name: str) -> ListedModel:
        """List the files of the base; raise SourceError or UsageError if that fails."""
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def _read(self, name: str) -> ListedModel:
        # What a stranger's card names is no path on this machine.
        target = parse_model(name) if self._base is not None else HubModel(id=name)
        if isinstance(target, Path) or self._source == "cache":
            here = fetch(name, source=self._source, say=self._say, choose=select_config)
            return ListedModel(here.model, here.files, here.commit, here.folder)
        from auditor.downloader.hub import read_listing  # noqa: PLC0415 - 0.1 s

        listing, fetched = read_listing(target, self._token, self._say)
        return ListedModel(listing.model_id, listing.files, listing.commit, fetched=fetched)


def _compared(snapshot: Snapshot, base: ListedModel) -> SharedFiles:
    audited = {head.name for head in snapshot.headers}
    files = [file for file in snapshot.files if file.name in audited]
    states = {head.name: head.state for head in snapshot.headers}
    return files_of_base(
        files,
        base.files,
        digest=_digests(snapshot.folder, states),
        digest_of_base=_digests(base.folder, {}),
    )


def _digests(folder: Path | None, states: Mapping[str, FileState | None]) -> Digest:
    """Return a function for a file's digest: the listed one, or that of the file in the folder.

    Each file is read once. It raises SourceError if the state of the file is not as in `states`.
    """
    known: dict[str, str] = {}

    def digest(file: RepoFile) -> str | None:
        if file.sha256 is not None or folder is None:
            return file.sha256
        if file.name not in known:
            path, state = folder / file.name, states.get(file.name)
            known[file.name] = file_sha256(path, expected=state)
        return known[file.name]

    return digest


def _told(
    outcome: Report | Unaudited,
    found: SharedFiles,
    base: ListedModel,
    ignore: tuple[Ignore, ...],
) -> Report | Unaudited:
    at = f"{quoted(base.name)}{f' @ {base.commit[:12]}' if base.commit else ''}"
    new: list[EqualsBase] = []
    if found.equal and not (found.other or found.unknown):
        count = len(found.equal)
        whose = f"all {count:,} weight files are" if count > 1 else "the weight file is"
        reason = f"{whose}, byte for byte, of {at}: the sha256 is the same"
        new.append(EqualsBase(files=found.equal, reason=reason))
    outcome = with_more_findings(outcome, new, ignore, notes=_notes(found, at))
    if not found.unknown:
        return outcome
    why = f"the base: no digest of {listed(found.unknown)} is known, or none of {at}"
    return replace(outcome, unchecked=(*outcome.unchecked, why))


def _notes(found: SharedFiles, at: str) -> Iterator[str]:
    count = len(found.equal) + len(found.other) + len(found.unknown)
    if found.equal and len(found.equal) < count:
        names = listed(found.equal)
        yield f"{len(found.equal):,} of {count:,} weight files are, byte for byte, of {at}: {names}"
    elif len(found.other) == count:
        yield f"no weight file is, byte for byte, of {at}"
