"""An unpickler's stack and memo, bounded, on records in place of objects."""

import re

from auditor.containers.pickled import Call, Global, Pairs, Persistent, kind

# Bounds. One tensor of a state dict takes 190 bytes, 40 opcodes, 12 objects and 11 entries of the
# memo (BERT and Llama, torch 2.13), so that there is room for 16,000 tensors in one file. With all
# the bounds reached at once an audit takes 0.4 s and 36 MB more than usual.
MAX_PICKLE = 8 * 1024 * 1024  # bytes
MAX_OPCODES = 1_000_000
MAX_OBJECTS = 200_000  # containers, strings, records; numbers are bounded by the opcodes
MAX_MEMO = 200_000
MAX_TEXT = 1024 * 1024  # bytes of one string
MAX_LONG = 256  # bytes of one integer, 616 digits; torch's magic number has ten
MAX_INDEX_DIGITS = 20  # of u64
MAX_LINE = 64 * 1024  # bytes of an argument of protocol 0
PROTOCOLS = 5

_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "r": "\r", "t": "\t"}


class FaultError(Exception):
    """What no unpickler could do, or what passes a bound; the verb comes first."""


class TruncatedError(Exception):
    """The bytes end inside the pickle."""


class Machine:
    """The unpickler's stack and memo; each method named after opcodes does what they do."""

    def __init__(self, data: bytes, start: int) -> None:
        self.data = data
        self.position = start
        self.at = start  # of the opcode at work
        self.stack: list[object] = []
        self.below: list[list[object]] = []  # the stacks under the marks
        self.memo: dict[int, object] = {}
        self.globals: dict[Global, None] = {}
        self.calls: list[Call] = []
        self.kept: list[Persistent] = []
        self.objects = 0

    # --- bytes, stack and memo ---

    def take(self, count: int) -> bytes:
        start, self.position = self.position, self.position + count
        if self.position > len(self.data):
            raise TruncatedError
        return self.data[start : self.position]

    def number(self, width: int, *, signed: bool = False) -> int:
        return int.from_bytes(self.take(width), "little", signed=signed)

    def line(self) -> str:
        return self.raw_line().decode("utf-8", "backslashreplace")

    def raw_line(self) -> bytes:
        end = self.data.find(b"\n", self.position, self.position + MAX_LINE)
        if end < 0:
            if len(self.data) - self.position < MAX_LINE:
                raise TruncatedError
            self.position += MAX_LINE
            raise FaultError(f"has a line of more than {MAX_LINE:,} bytes")
        line = self.data[self.position : end]
        self.position = end + 1
        return line

    def push(self, value: object) -> None:
        """Push what is new; what was there before is appended to the stack as it is."""
        self.objects += 1
        if self.objects > MAX_OBJECTS:
            raise FaultError(f"makes more than {MAX_OBJECTS:,} objects")
        self.stack.append(value)

    def pop(self) -> object:
        if not self.stack:
            raise FaultError("pops from an empty stack")
        return self.stack.pop()

    def top(self) -> object:
        if not self.stack:
            raise FaultError("looks at an empty stack")
        return self.stack[-1]

    def mark(self) -> None:
        self.below.append(self.stack)
        self.stack = []

    def drop(self) -> None:
        """Drop the topmost object; the mark, where that is topmost."""
        if self.stack:
            self.stack.pop()
        else:
            self.to_mark()

    def to_mark(self) -> list[object]:
        if not self.below:
            raise FaultError("goes back to a mark that was not set")
        items, self.stack = self.stack, self.below.pop()
        return items

    def put(self, index: int) -> None:
        if len(self.memo) >= MAX_MEMO:
            raise FaultError(f"remembers more than {MAX_MEMO:,} objects")
        self.memo[index] = self.top()

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise FaultError(f"recalls object {_shown(index)}, which it did not remember")
        self.stack.append(self.memo[index])

    # --- values ---

    def text(self, width: int) -> None:
        self.push(self.sized(width).decode("utf-8", "backslashreplace"))

    def octets(self, width: int) -> None:
        self.push(self.sized(width))

    def sized(self, width: int) -> bytes:
        length = self.number(width)
        if length > MAX_TEXT:
            raise FaultError(f"has a string of {length:,} bytes; {MAX_TEXT:,} are the most read")
        return self.take(length)

    def quoted_line(self) -> None:
        line = self.line().strip()
        if len(line) < len("''") or line[0] != line[-1] or line[0] not in "'\"":
            raise FaultError("has a string without its quotes")
        self.push(_ESCAPE.sub(_unescaped, line[1:-1]))

    def escaped_line(self) -> None:
        try:
            text = self.raw_line().decode("raw-unicode-escape")
        except UnicodeDecodeError:
            raise FaultError("has a string with a broken escape") from None
        self.push(text.encode("utf-8", "backslashreplace").decode())  # half a character is escaped

    def decimal(self) -> None:
        line = self.line().strip().removesuffix("L")
        if len(line) > 2 * MAX_LONG or not re.fullmatch(r"[+-]?[0-9]+", line, re.ASCII):
            raise FaultError("has an integer that is none, or too long")
        self.stack.append({"00": False, "01": True}.get(line, int(line)))

    def decimal_index(self) -> int:
        line = self.line().strip()
        if len(line) > MAX_INDEX_DIGITS or not (line.isascii() and line.isdecimal()):
            raise FaultError("has a place in its memo that is no number")
        return int(line)

    def decimal_float(self) -> None:
        line = self.line().strip()
        try:
            self.push(float(line))
        except ValueError:
            raise FaultError("has a number that is none") from None

    def long(self, width: int) -> None:
        length = self.number(width, signed=width == 4)  # noqa: PLR2004 - LONG4's is signed
        if not 0 <= length <= MAX_LONG:
            raise FaultError(f"has an integer of {length:,} bytes; {MAX_LONG} are the most read")
        self.stack.append(self.number(length, signed=True))

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise FaultError("pops from an empty stack")
        items = tuple(self.stack[len(self.stack) - count :])
        del self.stack[len(self.stack) - count :]
        self.push(items)

    # --- containers ---

    def dict_of(self) -> None:
        self.push(Pairs(_paired(self.to_mark())))

    def append(self, items: list[object]) -> None:
        target = self.top()
        if isinstance(target, list):
            target.extend(items)
        elif not isinstance(target, Call):  # what a made object does with its items is not kept
            raise FaultError(f"appends to {kind(target)}")

    def set_item(self) -> None:
        value = self.pop()
        self.set_items([self.pop(), value])

    def set_items(self, items: list[object]) -> None:
        target, pairs = self.top(), _paired(items)
        if isinstance(target, Call) and target.pairs is None:
            target.pairs = []
        kept = target.pairs if isinstance(target, Pairs | Call) else None
        if kept is None:
            raise FaultError(f"sets items of {kind(target)}")
        kept.extend(pairs)

    # --- what would be imported, called or given state ---

    def found(self, module: str, name: str) -> Global:
        value = Global(module, name)
        self.globals[value] = None
        return value

    def named_global(self) -> None:
        self.push(self.found(self.line(), self.line()))

    def stacked_global(self) -> None:
        name, module = self.pop(), self.pop()
        if not (isinstance(module, str) and isinstance(name, str)):
            raise FaultError(f"imports {kind(name)} from {kind(module)}")
        self.push(self.found(module, name))

    def called(self, how: str, callee: object, args: object) -> None:
        call = Call(how, callee, args)
        self.calls.append(call)
        self.push(call)

    def reduce(self, how: str) -> None:
        args = self.pop()
        self.called(how, self.pop(), args)

    def new_object_ex(self) -> None:
        keywords, args = self.pop(), self.pop()
        self.called("NEWOBJ_EX", self.pop(), (args, keywords))

    def instance(self) -> None:
        callee = self.found(self.line(), self.line())
        self.called("INST", callee, tuple(self.to_mark()))

    def object_of(self) -> None:
        items = self.to_mark()
        if not items:
            raise FaultError("pops from an empty stack")
        self.called("OBJ", items[0], tuple(items[1:]))

    def build(self) -> None:
        state, target = self.pop(), self.top()
        if not isinstance(target, Call):  # an import, given state, is a module that is changed
            target = Call("BUILD", target, ())
            self.calls.append(target)
        target.state, target.built = state, True

    def persistent(self, key: object) -> None:
        self.kept.append(Persistent(key))
        self.push(self.kept[-1])

    def protocol(self) -> None:
        version = self.number(1)
        if version > PROTOCOLS:
            raise FaultError(f"is of protocol {version}; {PROTOCOLS} is the latest there is")

    def refuse(self, why: str) -> None:
        raise FaultError(why)


def _unescaped(found: re.Match[str]) -> str:
    digits, letter = found.groups()
    return chr(int(digits, 16)) if digits else _LETTERS.get(letter, letter)


def _paired(items: list[object]) -> list[tuple[object, object]]:
    if len(items) % 2:
        raise FaultError("has a key without a value")
    return list(zip(items[::2], items[1::2], strict=True))


def _shown(number: int) -> str:
    return f"{number:,}" if abs(number) < 2**64 else "of an absurd number"
