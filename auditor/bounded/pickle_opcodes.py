"""The opcodes at the start of a file, read without a stack to see whether it may be a pickle.

Everything that an unpickler reads as an opcode is read as one here, and more. So bytes in which no
opcode imports run nothing, whatever unpickler reads them: a text, an image, or a pickle of plain
values.
"""

import pickletools
import re
import sys
from typing import NamedTuple

_WIDTHS = {ord(one.code): one.arg.n if one.arg else 0 for one in pickletools.opcodes}
_LENGTH_BYTES = {
    pickletools.TAKEN_FROM_ARGUMENT1: 1,
    pickletools.TAKEN_FROM_ARGUMENT4: 4,
    pickletools.TAKEN_FROM_ARGUMENT4U: 4,
    pickletools.TAKEN_FROM_ARGUMENT8U: 8,
}
_NAMED = b"ci"  # GLOBAL and INST, whose argument is two lines
_FROM_STACK, _FRAME, _STOP = 0x93, 0x95, ord(".")
_CALLS = b"Riob\x81\x92"
_REGISTERED = b"\x82\x83\x84"  # EXT: nothing is registered, so every unpickler fails
_NUMBERS = b"FILgp"
_NUMBER = re.compile(rb"[\s0-9a-fA-FxXoO_+\-.LlnNiItTyY]*(\0.*)?", re.DOTALL)
_NAME = re.compile(rb"[^\W\d][\w.]*")


class Opcodes(NamedTuple):
    """The result of reading opcodes up to the first byte that no unpickler reads as one."""

    names: tuple[tuple[bytes, bytes] | None, ...]  # module and name; None: taken from the stack
    is_used: bool  # whether an opcode after an import calls something
    is_ended: bool  # whether STOP was reached
    is_cut: bool  # whether the bytes at hand end first, and the file does not

    @property
    def is_standard(self) -> bool:
        """Whether a module of the standard library is imported, or one named on the stack."""
        return any(name is None or _root(name) in _STANDARD for name in self.names)

    @property
    def is_credible(self) -> bool:
        """Whether the imports can be meant: two words of a text may look like one."""
        are_names = any(name and all(map(_NAME.fullmatch, name)) for name in self.names)
        return self.is_standard or (are_names and (self.is_used or self.is_ended))


def _root(name: tuple[bytes, bytes]) -> str | None:
    """Return the outermost package of an import; None if it is not an identifier."""
    are_names = all(map(_NAME.fullmatch, name))
    return name[0].split(b".")[0].decode() if are_names else None


_STANDARD = sys.stdlib_module_names | {"__builtin__", "copy_reg"}


def read_opcodes(data: bytes, size: int) -> Opcodes:
    """Read the opcodes at the start of `data`, the first bytes of a file of `size` bytes."""
    names: list[tuple[bytes, bytes] | None] = []
    is_used, at = False, 0
    while at < len(data):
        code = data[at]
        stop = _argument_stop(data, at)
        if stop is None or stop > size or code == _STOP:
            return Opcodes(tuple(names), is_used, code == _STOP, is_cut=False)
        if stop > len(data):
            break
        if code in _NAMED:
            module, name, *_ = data[at + 1 : stop].split(b"\n")
            names.append((module, name))
        elif code in {_FROM_STACK, _FRAME}:  # unpicklers differ in what follows a frame
            names.append(None)
        is_used = is_used or (bool(names) and code in _CALLS)
        at = stop
    return Opcodes(tuple(names), is_used, is_ended=False, is_cut=len(data) < size)


def _argument_stop(data: bytes, at: int) -> int | None:
    """Return the offset after an opcode and its argument; None if every unpickler fails there."""
    code, start = data[at], at + 1
    width = _WIDTHS.get(code)
    if width is None or code in _REGISTERED:
        return None
    if width >= 0:
        return start + width
    if width in _LENGTH_BYTES:
        data_start = start + _LENGTH_BYTES[width]
        return data_start + int.from_bytes(data[start:data_start], "little")
    end = data.find(b"\n", start)
    if code in _NAMED and end >= 0:
        end = data.find(b"\n", end + 1)
    line = data[start : end if end >= 0 else len(data)]
    is_number = code not in _NUMBERS or _NUMBER.fullmatch(line)
    if not is_number or (code == ord("S") and line and line[:1] not in b"'\""):
        return None
    return end + 1 if end >= 0 else len(data) + 1
