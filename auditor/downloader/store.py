"""Read a checkpoint from a store, by its address: a bucket, or whatever else fsspec reads.

huggingface_hub brings fsspec; the package of each store (s3fs, gcsfs, adlfs) is the user's, and so
are its credentials. A store has no commits: the version of a checkpoint is a digest of its listing.
"""

import hashlib
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from auditor.checkpoint.filenames import CONFIG, Chooser
from auditor.checkpoint.selecting import (
    ADAPTER_CONFIG,
    is_weights,
    name_fault,
    select,
    select_place,
)
from auditor.checkpoint.snapshot import Fetched, RepoFile, Snapshot, Source, TextFile, WeightHeader
from auditor.companions.companion_files import OF_HUB, CompanionBounds
from auditor.containers.manifest import MANIFESTS
from auditor.downloader.answers import too_large
from auditor.downloader.assemble import assemble
from auditor.downloader.folder_listing import MAX_ENTRIES
from auditor.downloader.headers import FIRST_READ, Received, read_header
from auditor.downloader.http import MOST_BYTES
from auditor.downloader.hub_settings import require_online, usable_token
from auditor.downloader.model_argument import StoreAddress
from auditor.downloader.parallel import awaited, threads
from auditor.downloader.waits import STOPPED, ProgressLines, ReadingProgress, headers_read
from auditor.downloader.web_folder import WebFolder
from auditor.errors import AuditError, Reason, SourceError, UsageError
from auditor.messages import quoted
from auditor.names.parts import file_name
from auditor.redaction import masked
from auditor.tensors import Span

_AT_ONCE = 16  # concurrent reads
_LONGEST_FAULT = 300  # characters of a store's own message

# The properties of a listed file by which stores tell one version of it from the next.
_VERSIONS = "ETag etag generation version_id VersionId content_md5 md5Hash xet_hash blob_id "
_VERSIONS += "last_modified LastModified mtime created"


class StoreFile(NamedTuple):
    """A file in the listing of a store, with what identifies its version; "": nothing does."""

    file: RepoFile
    version: str


class StoreFolder(Protocol):
    """A folder of a store; several threads read its files."""

    host: str  # for messages

    def listing(self) -> Iterator[StoreFile]:
        """Yield the files below the folder."""
        ...

    def read(self, name: str, span: Span) -> Received:
        """Return the bytes of a span, fewer at the end of the file, and its size if known."""
        ...


class StoreListing(NamedTuple):
    """The files of a folder of a store."""

    files: Mapping[str, StoreFile]  # by name, sorted

    @property
    def version(self) -> str | None:
        """A digest of the names, sizes and versions of the files, in 40 hex digits.

        None if the store does not identify the version of each file.
        """
        if not all(one.version for one in self.files.values()):
            return None
        digest = hashlib.sha256()
        for name, (file, version) in self.files.items():
            digest.update(f"{name}\0{file.size}\0{version}\0".encode(errors="surrogatepass"))
        return digest.hexdigest()[:40]


def read(
    address: StoreAddress, token: str | None, say: Callable[[str], None], choose: Chooser = select
) -> Snapshot:
    """Return the snapshot of a checkpoint in a store; raise SourceError if it cannot be read.

    The files that were read are listed again at the end: a checkpoint that changes meanwhile is no
    checkpoint.
    """
    place, listing, is_file = _listed(address, token, say)
    if is_file:
        choose = partial(select_place, place=address.name)
    files = tuple(one.file for one in listing.files.values())
    snapshot = Snapshot(
        model=address.url,
        commit=None,
        version=listing.version,
        source=Source.STORE,
        origin=f"read from {place.host}",
        files=files,
    )
    reader = _StoreFiles(place)
    progress = ReadingProgress(
        ProgressLines.of(say).progress, headers_read(lambda: reader.fetched.bytes)
    )
    try:
        selection = choose({file.name for file in files}, address.url)
        with threads(_AT_ONCE, reader.stop) as scheduler:
            snapshot = assemble(snapshot, reader, selection, scheduler, progress)
        _require_unchanged(listing, list_files(place), reader.names)
    except SourceError as error:
        error.snapshot = snapshot
        raise
    return replace(snapshot, fetched=reader.fetched)


def _listed(
    address: StoreAddress, token: str | None, say: Callable[[str], None]
) -> tuple[StoreFolder, StoreListing, bool]:
    """Return a folder with its files; for a file, the folder that has it, and true."""
    if address.may_be_file:
        place = opened(address.parent, token, say)
        listing = list_files(place)
        if address.name in listing.files:
            return place, listing, True
    place = opened(address, token, say)
    return place, list_files(place), False


def _require_unchanged(before: StoreListing, after: StoreListing, names: frozenset[str]) -> None:
    for name in sorted(names):
        if before.files[name] != after.files.get(name):
            detail = f"{quoted(name)} changed while the checkpoint was read; audit it again"
            raise SourceError(Reason.COMMIT_MOVED, detail)


def list_files(place: StoreFolder) -> StoreListing:
    """List the files below a folder; raise SourceError if it has none or too many."""
    files: dict[str, StoreFile] = {}
    for one in islice(place.listing(), MAX_ENTRIES + 1):
        if not one.file.name:
            detail = f"{place.host} is a file, expected a folder, or a file of weights"
            raise SourceError(Reason.NOT_FOUND, detail)
        if fault := name_fault(one.file.name):
            raise SourceError(Reason.BAD_RESPONSE, f"the listing of {place.host}: {fault}")
        files[one.file.name] = one
    if len(files) > MAX_ENTRIES:
        detail = f"{place.host} lists more than {MAX_ENTRIES:,} files: it is not a model's folder"
        raise SourceError(Reason.TOO_LARGE, detail)
    if not files:
        raise SourceError(Reason.NOT_FOUND, f"{place.host} has no files at this address")
    return StoreListing(dict(sorted(files.items())))


def models_in(listing: StoreListing) -> Iterator[tuple[str, StoreListing]]:
    """Yield each folder that is a model, `""` or with a slash at its end, and its files.

    A folder with weights, a config or a manifest is a model; what lies below belongs to it.
    """
    folders = {name.rpartition("/")[0] for name in listing.files if _is_of_model(name)}
    models: dict[str, dict[str, StoreFile]] = {}
    for name, one in listing.files.items():
        parts = name.split("/")
        above = ("/".join(parts[:depth]) for depth in range(len(parts)))
        folder = next((each for each in above if each in folders), None)
        if folder is not None:
            start = f"{folder}/" if folder else ""
            own_name = name.removeprefix(start)
            renamed = one._replace(file=replace(one.file, name=own_name))
            models.setdefault(start, {})[own_name] = renamed
    for start in sorted(models):
        yield start, StoreListing(models[start])


def _is_of_model(name: str) -> bool:
    return is_weights(name) or file_name(name) in {CONFIG, ADAPTER_CONFIG, *MANIFESTS}


def read_spans(
    address: StoreAddress,
    version: str | None,
    spans: Sequence[tuple[RepoFile, Span]],
    *,
    token: str | None,
    say: Callable[[str], None],
) -> tuple[tuple[bytes, ...], Fetched]:
    """Return the bytes of each span, in order, and the cost.

    Raise SourceError if a span cannot be read, or the listing has another version than the headers.
    """
    place, listing, _ = _listed(address, token, say)
    if listing.version != version:
        detail = f"{address.url} changed since its headers were read; audit it again"
        raise SourceError(Reason.COMMIT_MOVED, detail)
    reader = _StoreFiles(place, math.inf)  # the caller has chosen the spans
    with threads(_AT_ONCE, reader.stop) as scheduler:
        reads = [scheduler.submit(reader.part, file, span) for file, span in spans]
        data = tuple(map(awaited, reads))
    return data, reader.fetched


class _StoreFiles:
    """The files of one checkpoint, whose reads are counted and bounded."""

    bounds: CompanionBounds | None = OF_HUB
    patient = False

    def __init__(self, place: StoreFolder, most: float = MOST_BYTES) -> None:
        self._place, self._most = place, most
        self._lock = threading.Lock()
        self._names: set[str] = set()
        self._requests, self._bytes = 2, 0  # both listings
        self._since = time.monotonic()
        self._is_over = False

    @property
    def names(self) -> frozenset[str]:
        """The names of the files that were read."""
        return frozenset(self._names)

    @property
    def fetched(self) -> Fetched:
        seconds = time.monotonic() - self._since
        return Fetched(requests=self._requests, bytes=self._bytes, seconds=seconds)

    def stop(self) -> None:
        """Begin no more reads."""
        self._is_over = True

    def text(self, file: RepoFile, limit: int) -> TextFile:
        if file.size is not None and file.size > limit:
            raise too_large(file.name, limit, file.size)
        received = self._read(file, Span(0, limit + 1 if file.size is None else file.size))
        if len(received.data) > limit:
            raise too_large(file.name, limit, received.size)
        return TextFile(name=file.name, content=masked(received.data))

    def header(self, file: RepoFile, first: int = FIRST_READ) -> WeightHeader:
        return read_header(file.name, file.size, lambda span, _: self._read(file, span), first)

    def part(self, file: RepoFile, span: Span) -> bytes:
        return self._read(file, span).data

    def _read(self, file: RepoFile, span: Span) -> Received:
        if self._is_over:
            raise SourceError(Reason.UNREACHABLE, STOPPED)
        received = self._place.read(file.name, span)
        size = received.size if file.size is None else file.size
        if size is not None:
            expected = max(0, min(span.stop, size) - span.start)
            if len(received.data) != expected:
                detail = f"{self._place.host} sent {len(received.data):,} bytes of "
                detail += f"{quoted(file.name)}, expected {expected:,}"
                raise SourceError(Reason.BAD_RESPONSE, detail)
        with self._lock:
            self._names.add(file.name)
            self._requests += 1
            self._bytes += len(received.data)
        if self._bytes > self._most:
            detail = f"received {self._bytes:,} bytes, expected at most {self._most:,} of one model"
            raise SourceError(Reason.TOO_LARGE, detail)
        return Received(received.data, size)


# --- fsspec ---------------------------------------------------------------------------------------


def opened(address: StoreAddress, token: str | None, say: Callable[[str], None]) -> StoreFolder:
    """Return the folder at an address; raise SourceError if no installed package reads it."""
    if address.scheme in {"http", "https"}:
        return _OfWebServer(address, say)
    options: dict[str, Any] = {}
    if address.scheme == "hf":
        require_online()
        options["token"] = usable_token(token) or False
    import fsspec  # noqa: PLC0415 - 30 ms that no other source needs

    with _readable(address):
        system, path = fsspec.core.url_to_fs(address.url, use_listings_cache=False, **options)
        return _FsspecFolder(address, system, path)


class _OfWebServer(WebFolder):
    """A folder of a web server, as a folder of a store."""

    def listing(self) -> Iterator[StoreFile]:
        for name in self.names():
            yield StoreFile(RepoFile(name=name, size=None), "")


class _FsspecFolder:
    """A folder of a store that fsspec reads."""

    def __init__(self, address: StoreAddress, system: Any, path: str) -> None:
        self.host = address.url
        self._address, self._system, self._path = address, system, path.rstrip("/")
        # HfFileSystem reads 5 MiB ahead otherwise; packages of other stores read what is asked for.
        self._options = {"cache_type": "none"} if address.scheme == "hf" else {}

    def listing(self) -> Iterator[StoreFile]:
        with _readable(self._address):
            self._system.invalidate_cache()
            entries = self._system.find(self._path, detail=True)
        for path, entry in entries.items():
            if entry.get("type") == "directory" or path.endswith("/"):
                continue  # an empty object that stands for a folder
            size = entry.get("size")
            is_size = isinstance(size, int) and not isinstance(size, bool) and size >= 0
            name = path.removeprefix(self._path).removeprefix("/")
            version = "\0".join(str(entry[key]) for key in _VERSIONS.split() if key in entry)
            yield StoreFile(RepoFile(name=name, size=size if is_size else None), version)

    def read(self, name: str, span: Span) -> Received:
        path, bounds = f"{self._path}/{name}", {"start": span.start, "end": span.stop}
        with _readable(self._address, name):
            data = self._system.cat_file(path, **bounds, **self._options)
        return Received(bytes(data), None)


_REASONS = {
    FileNotFoundError: (Reason.NOT_FOUND, "does not exist"),
    PermissionError: (Reason.DENIED, "may not be read with the credentials of this machine"),
    TimeoutError: (Reason.TIMED_OUT, "was not answered in time"),
}


@contextmanager
def _readable(address: StoreAddress, name: str = "") -> Iterator[None]:
    """Raise SourceError if a store fails in the block, UsageError if no package reads it."""
    what = quoted(f"{address.url}/{name}" if name else address.url)
    try:
        yield
    except AuditError:
        raise
    except ImportError as error:  # "Install s3fs to access S3"
        raise UsageError(f"{what} needs a package that is not installed: {error}") from None
    except Exception as error:  # noqa: BLE001 - each store's package has errors of its own
        fault = " ".join(str(error).split())[:_LONGEST_FAULT] or type(error).__name__
        for kind, (reason, predicate) in _REASONS.items():
            if isinstance(error, kind):
                raise SourceError(reason, f"{what} {predicate} ({quoted(fault)})") from None
        if isinstance(error, ValueError) and "Protocol not known" in fault:
            raise UsageError(f"{what} is an address that nothing here reads: {fault}") from None
        raise SourceError(Reason.UNREACHABLE, f"{what} cannot be read: {quoted(fault)}") from None
