"""The format of a file that is neither safetensors nor a torch file, by its first bytes."""

import string

# Public formats' own signatures; the order matters only where one begins with another.
_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"version ", "a Git LFS pointer: the real file was never fetched or never pushed"),
    (b"PK\x03\x04", "a zip archive, as torch.save and numpy.savez write"),
    (b"\x80\x02", "a Python pickle, as older versions of torch.save write"),
    (b"\x80\x03", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x80\x05", "a Python pickle"),
    (b"GGUF", "a GGUF file"),
    (b"ggml", "a GGML file"),
    (b"lmgg", "a GGML file"),
    (b"tjgg", "a GGML file"),
    (b"fmgg", "a GGML file"),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file, as Keras writes"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x28\xb5\x2f\xfd", "a zstandard archive"),
    (b"BZh", "a bzip2 archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"<<<<<<< ", "a git merge conflict"),
    (b"\xef\xbb\xbf", "text with a byte order mark"),
)
_PREFIX = 8  # fewer letters than that prove nothing
_PRINTABLE = string.printable.encode()


def format_by_magic(prefix: bytes) -> str | None:
    """Return `a zip archive, as torch.save writes`; None for an unknown format."""
    for signature, name in _SIGNATURES:
        if prefix.startswith(signature):
            return name
    text = prefix.lstrip()[:64].lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "an HTML or XML page: perhaps an error page saved in place of the file"
    if text.startswith((b"{", b"[")):
        return "bare JSON, without the eight bytes of length that come first"
    if len(prefix) >= _PREFIX and not prefix[:64].translate(None, _PRINTABLE):
        return "plain text"
    return None
