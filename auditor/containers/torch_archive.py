"""The zip form of torch.save: which entry is the pickle, and which the storages.

As torch's reader has it: the archive's folder is that of the directory's first entry, names are
compared without case, and an archive with anything outside the folder is refused.
"""

from collections.abc import Mapping
from itertools import islice

from msgspec import Struct

from auditor.containers import zip_directory
from auditor.containers.pickle_reader import MAX_PICKLE
from auditor.containers.torch_storages import Held, Storage
from auditor.containers.weight_formats import PartialFile
from auditor.errors import CheckpointError
from auditor.messages import named, quoted
from auditor.tensors import Span

_ALIGNED = 64  # bytes; where torch's writer lets the data of an entry begin
_FIELD = 4  # bytes of the head of an extra field in a local header
_U32_MAX = 2**32 - 1
_VERSIONS = (b"version", b".data/version")  # torch opens no archive without one of them


class TorchArchive(Struct, frozen=True):
    """An archive that torch's reader opens, judged by its directory."""

    zip: zip_directory.Archive
    folder: bytes  # with the slash
    data: zip_directory.ZipEntry  # of the pickle

    def pickle(self, sparse: PartialFile) -> bytes:
        return zip_directory.entry_content(self.zip, self.data, sparse, MAX_PICKLE)

    def held(self, storages: Mapping[str, Storage]) -> Held:
        """Where the storages lie, and which of them cannot be what the pickle says."""
        spans: dict[str, Span] = {}
        faults: dict[str, str] = {}
        for key, storage in storages.items():
            entry = self.zip.find(self.folder + b"data/" + key.encode())
            if entry is None:
                faults[key] = f"its storage {quoted(key)} is not in the archive"
                continue
            if entry.size != storage.length:
                faults[key] = (
                    f"its storage {quoted(key)} has {entry.size:,} bytes in the archive, and the "
                    f"pickle declares {storage.length:,}"
                )
            start = _data_start(entry)
            spans[key] = Span(start, start + storage.length)
        return Held(spans, faults)


def open_archive(file: str, sparse: PartialFile) -> TorchArchive:
    """The archive; raises CheckpointError where torch opens none, or could open another."""
    archive = zip_directory.read_directory(file, sparse)
    first = next(iter(archive.entries.values()), None)
    folder = first.raw.partition(b"/")[0] + b"/" if first else b"/"
    if archive.find(folder + b"constants.pkl"):
        raise CheckpointError(
            f"{named(file)} is a TorchScript archive, a program with its tensors (constants.pkl), "
            f"which from_pretrained does not load; save its state_dict() with torch.save"
        )
    entry = archive.find(folder + b"data.pkl")
    if entry is None:
        names = ", ".join(quoted(name) for name in islice(archive.entries, 3))
        raise CheckpointError(
            f"{named(file)} is a zip archive without {quoted(_text(folder) + 'data.pkl')}, so none "
            f"of torch.save; it holds {names or 'nothing'}"
        )
    _require_one_folder(archive, folder)
    if not any(archive.find(folder + name) for name in _VERSIONS):
        raise CheckpointError(
            f"{named(file)} has no entry {quoted(_text(folder) + 'version')}, without which torch "
            f"does not open it"
        )
    return TorchArchive(archive, folder, entry)


def _require_one_folder(archive: zip_directory.Archive, folder: bytes) -> None:
    for entry in archive.entries.values():
        if not entry.raw.startswith(folder):
            raise CheckpointError(
                f"{named(archive.file)}: its zip directory has {quoted(entry.name)} outside the "
                f"folder of its first entry, {quoted(_text(folder))}: torch refuses that"
            )


def _text(folder: bytes) -> str:
    return folder.decode("utf-8", "backslashreplace")


def _data_start(entry: zip_directory.ZipEntry) -> int:
    """Where torch's writer lets an entry's data begin, judged by the directory.

    Behind a field of padding, and 64-bit sizes where they are needed, at the next multiple of 64.
    Reading the local headers would take a request for each storage.
    """
    large, far = entry.packed >= _U32_MAX, entry.header >= _U32_MAX
    wide = _FIELD + 16 * large + 8 * far if large or far else 0
    start = -(-(entry.least + _FIELD + wide) // _ALIGNED) * _ALIGNED
    return start if start + entry.packed <= entry.stop else entry.least
