"""Runs the unpicklers of torch and CPython: every import is recorded, none is made.

The unpickler is CPython's own in C, with `find_class` and `persistent_load` overridden as torch
overrides them; in place of an import there is a class that takes whatever is done to it. The reader
of archives is torch's own. Files of the legacy form are read as torch.serialization does.
"""

import io
import pickle
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any, Self

import torch

MAGIC = torch.serialization.MAGIC_NUMBER
PROTOCOL = torch.serialization.PROTOCOL_VERSION


class _Importing(type):
    """The classes that stand for imports: a state may be set on the class itself."""

    @property  # the unpickler asks the class, whose own method is for its instances
    def __setstate__(cls) -> Callable[[Any], None]:  # noqa: PLE0302 - a property
        return lambda _state: None


class Made(metaclass=_Importing):
    """The result of a call of an import, on which anything may be done."""

    def __new__(cls, *_args: Any, **_keywords: Any) -> Self:
        return super().__new__(cls)

    def __init__(self, *_args: Any, **_keywords: Any) -> None:
        """Take any arguments."""

    def __call__(self, *_args: Any) -> "Made":
        return Made()

    def __setstate__(self, _state: Any) -> None:
        """Keep nothing of it."""

    def __setitem__(self, key: Any, value: Any) -> None:
        """Keep nothing of it."""

    def extend(self, _items: Any) -> None:
        """Keep nothing of them."""

    add = append = extend


class Stored:
    """The object that the loader's persistent_load supplies."""

    def __setstate__(self, _state: Any) -> None:
        """Keep nothing of it."""


@dataclass
class Judged:
    """The result for one pickle, or for all pickles of a file."""

    value: Any = None
    imports: list[tuple[str, str]] = field(default_factory=list)
    error: str | None = None  # torch, or the unpickler, refuses it
    stop: int = 0


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: IO[bytes], judged: Judged) -> None:
        super().__init__(stream, encoding="utf-8")
        self._judged = judged

    def find_class(self, module: str, name: str) -> type:
        self._judged.imports.append((module, name))
        return Made


class _WithStorages(_Unpickler):
    def persistent_load(self, key: Any) -> Any:
        """Return a storage, or in the legacy form a class, which comes with its source."""
        if isinstance(key, tuple) and len(key) > 1 and key[0] == "module":
            return key[1]
        return Stored()


def unpickled(stream: IO[bytes], judged: Judged, *, storages: bool = True) -> None:
    """Run the unpickler over a stream from its position, and record the result in `judged`."""
    kind = _WithStorages if storages else _Unpickler
    try:
        judged.value = kind(stream, judged).load()
    except Exception as error:  # noqa: BLE001 - whatever hostile bytes make of the unpickler
        judged.error = f"{type(error).__name__}: {error}"
    judged.stop = stream.tell()


def streams(data: bytes) -> Iterator[IO[bytes]]:
    """Yield the two kinds of stream that torch uses: with and without looking ahead."""
    yield io.BytesIO(data)
    yield io.BufferedReader(io.BytesIO(data))


def of_pickle(data: bytes) -> Iterator[Judged]:
    """Yield the result for a pickle in each kind of stream."""
    for stream in streams(data):
        judged = Judged()
        unpickled(stream, judged)
        yield judged


def data_pkl(content: bytes) -> bytes | str:
    """Return the pickle that torch's own reader finds in an archive, or why it refuses it."""
    try:
        reader: Any = torch._C.PyTorchFileReader(io.BytesIO(content))
        if "constants.pkl" in reader.get_all_records():
            return "it is a program of TorchScript"
        for name in ("byteorder", ".format_version", ".storage_alignment"):
            if reader.has_record(name):
                reader.get_record(name)
        return bytes(reader.get_record("data.pkl"))
    except (RuntimeError, UnicodeDecodeError) as error:  # the latter of a message, or of a name
        return str(error).partition("\n")[0]


def of_file(content: bytes) -> Judged:
    """Return the result for all pickles that torch.load(weights_only=False) would unpickle."""
    if content.startswith(b"PK\x03\x04"):
        data = data_pkl(content)
        if isinstance(data, str):
            return Judged(error=f"torch's reader refuses the archive: {data}")
        judged = Judged()
        unpickled(io.BytesIO(data), judged)
        return judged
    return _of_tar(content) or _of_pickles(content)


def _of_tar(content: bytes) -> Judged | None:
    """Read the tar form before 0.1.10, which torch tries first; None if it is not a tar archive."""
    judged = Judged()
    try:
        with tarfile.open(
            fileobj=io.BytesIO(content), mode="r:", format=tarfile.PAX_FORMAT
        ) as archive:
            _members(archive, judged)
    except tarfile.TarError:
        return None
    except Exception as error:  # noqa: BLE001 - torch.load ends with it, too
        judged.error = f"{type(error).__name__}: {error}"
    return judged


def _members(archive: tarfile.TarFile, judged: Judged) -> None:
    """Unpickle the three members in the order in which torch reads them."""
    for name in ("storages", "tensors", "pickle"):
        try:
            member = archive.extractfile(name)
        except KeyError:
            return
        held = member.read() if member else b""
        stream = io.BytesIO(held)
        before = -1
        while before < stream.tell() < len(held):
            before = stream.tell()
            unpickled(stream, judged, storages=name == "pickle")


def _of_pickles(content: bytes) -> Judged:
    """Unpickle the five of the legacy form; both kinds of stream give one result."""
    judged = Judged()
    for stream in streams(content):
        judged = Judged()
        for number in range(5):
            one = Judged(imports=judged.imports)
            unpickled(stream, one, storages=number == 3)
            judged.error, judged.stop = one.error, one.stop
            if number == 3:
                judged.value = one.value
            wrong = (number == 0 and one.value != MAGIC) or (number == 1 and one.value != PROTOCOL)
            if wrong and not one.error:
                judged.error = "torch refuses the magic number or the protocol"
            if judged.error:
                break
    return judged
