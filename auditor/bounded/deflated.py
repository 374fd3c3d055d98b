"""Compression, and decompression within bounds: a few untrusted kilobytes can become gigabytes."""

import base64
import binascii
import gzip
import io
import zlib

from auditor.errors import CheckpointError

GZIP = b"\x1f\x8b"
# zlib's level. DeepSeek-V3's headers and index, 20.4 MB, become 1.99 MB of base64 in 0.08 s; 1.80
# in 0.22 s at level 6, and 1.77 in 0.30 at level 9.
_LEVEL = 3
_PIECE = 1024 * 1024  # bytes inflated at a time, so that they can be counted
# Above this size, a gzip file that inflates to a hundred times its size is refused: what this
# program gzips is deflated already.
_SURE, _RATIO = 32 * 1024 * 1024, 100


class BoundedTotal:
    """The upper limit of a quantity, such as bytes read, and the amount so far."""

    def __init__(self, has: str, unit: str, most: int) -> None:
        self._has, self._unit, self._most = has, unit, most
        self._sum = 0

    def add(self, count: int) -> None:
        self._sum += count
        require(self._has, self._sum, self._unit, self._most)


def require(has: str, count: int, unit: str, most: int) -> None:
    """Raise CheckpointError if the count is above `most`."""
    if count > most:
        raise CheckpointError(f"{has} {count:,} {unit}, expected at most {most:,}")


def deflate(content: bytes) -> str:
    """Compress bytes to base64 text, which `inflate` reads."""
    return base64.b64encode(zlib.compress(content, _LEVEL)).decode()


def inflate(text: str, what: str, most: int, total: BoundedTotal) -> bytes:
    """Return the bytes that `deflate` compressed.

    Raise CheckpointError if the text is broken, or if the bytes exceed `most` or the `total`.
    """
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CheckpointError(f"{what}: its base64 is broken ({error})") from None
    size = _inflated_size(content, what, most)
    total.add(size)
    return zlib.decompress(content, bufsize=max(size, 1))


def gunzip(content: bytes, most: int) -> bytes:
    """Return a file's content, decompressed if it is gzipped.

    Raise CheckpointError if its gzip is broken, or if it inflates to more than `most` bytes or to
    more than is plausible for its size.
    """
    if not content.startswith(GZIP):
        return content
    most = min(most, max(_SURE, _RATIO * len(content)))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            inflated = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise CheckpointError(f"its gzip is broken ({error})") from None
    if len(inflated) > most:
        raise CheckpointError(f"it inflates to more than {most:,} bytes")
    return inflated


def _inflated_size(content: bytes, what: str, most: int) -> int:
    inflater = zlib.decompressobj()
    size = 0
    try:
        while not inflater.eof:
            piece = len(inflater.decompress(content, _PIECE))
            if not piece and not inflater.eof:
                raise CheckpointError(f"{what}: its deflated bytes are cut off")
            size += piece
            if size > most:
                raise CheckpointError(f"{what}: it inflates to more than {most:,} bytes")
            content = inflater.unconsumed_tail
    except zlib.error as error:
        raise CheckpointError(f"{what}: its deflated bytes are broken ({error})") from None
    if inflater.unused_data:
        raise CheckpointError(f"{what}: its deflated bytes continue after their end")
    return size
