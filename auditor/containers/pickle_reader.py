"""The bytes of a pickle, in frames or not, from one opcode to the next.

A frame says how many bytes belong together. The unpickler in C reads that many, and drops the rest
of them if an opcode needs more; the one in Python refuses such a frame. Here a frame begins and
ends where opcodes do.
"""

from auditor.containers.pickle_arguments import FaultError

MAX_PICKLE = 8 * 1024 * 1024  # bytes
MAX_LINE = 64 * 1024  # bytes of an argument of protocol 0
PROTOCOLS = 5


class TruncatedError(Exception):
    """The bytes end inside the pickle."""


class Reader:
    """A place in the bytes, and where the frame around it ends."""

    def __init__(self, data: bytes, start: int) -> None:
        self.data = data
        self.position = start
        self.at = start  # of the opcode at work
        self.end = len(data)  # of the frame, or of the data outside a frame
        self.framed = False

    def leave_frame(self) -> None:
        """At the end of a frame: behind it anything may follow, unless it is the end of all."""
        if self.end == len(self.data):
            raise TruncatedError
        self.end, self.framed = len(self.data), False

    def take(self, count: int) -> bytes:
        start, self.position = self.position, self.position + count
        if self.position > self.end:
            self.overrun()
        return self.data[start : self.position]

    def overrun(self) -> None:
        if self.end == len(self.data):
            raise TruncatedError
        raise FaultError("has a frame that ends inside an opcode")

    def number(self, width: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(width), "little", signed=signed)

    def line(self) -> bytes:
        stop = min(self.end, self.position + MAX_LINE)
        end = self.data.find(b"\n", self.position, stop)
        if end < 0:
            if stop == self.end:
                self.overrun()
            self.position = stop
            raise FaultError(f"has a line of more than {MAX_LINE:,} bytes")
        line = self.data[self.position : end]
        self.position = end + 1
        return line

    def frame(self) -> None:
        if self.framed:
            raise FaultError("opens a frame inside a frame")
        length = self.number(8)
        if length > MAX_PICKLE:
            raise FaultError(f"has a frame of {length:,} bytes; {MAX_PICKLE:,} are the most read")
        if self.position + length > len(self.data):
            raise TruncatedError
        self.end, self.framed = self.position + length, True

    def protocol(self) -> None:
        version = self.number(1)
        if version > PROTOCOLS:
            raise FaultError(f"is of protocol {version}; {PROTOCOLS} is the latest there is")

    def require_end(self) -> None:
        """Raise FaultError where a pickle ends and the frame around it does not."""
        if self.framed and self.position != self.end:
            raise FaultError("ends before its frame does, behind which another may begin")
