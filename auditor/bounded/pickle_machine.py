"""An interpreter of pickles that runs no code: it imports, calls and sets nothing.

Only the opcodes that torch.save and numpy write are followed, with records in place of objects. Any
other opcode, name, form of a call or spelling ends the walk: the pickle is not followed to its end,
and may run code. A container must not be filled again after its first use, so that a call's
arguments do not change after the call.
"""

import pickletools
from collections.abc import Callable
from io import BytesIO
from typing import Any, Protocol

from auditor.bounded.pickle_names import (
    WEIGHTS_ONLY,
    Call,
    FollowedPickle,
    Global,
    Persistent,
    PickledDict,
    PickledSet,
    PickleFault,
    is_key,
    is_known,
    kind,
    may_have_state,
    new_object,
    renamed,
    result_of,
)
from auditor.messages import named, quoted

# One tensor of a state dict takes 120 bytes, 30 opcodes and 8 containers or calls, so that there is
# room for 16,000 tensors in one file.
MAX_PICKLE = 8 * 1024 * 1024  # bytes
MAX_STEPS = 1_200_000  # an opcode counts as one, or as five if it creates a container
MAX_LINES = 50  # unknown names of one pickle that are listed; more are counted
_MAKING = 5
_PROTOCOLS = 5
_ARGUMENTS = 4  # characters of a call that a line shows
_LONG = 2**64


class _NotFollowedError(Exception):
    """The error for an opcode that is not followed but that an unpickler may execute.

    The message begins with a verb.
    """


class _ImpossibleError(Exception):
    """The error for an opcode at which every unpickler fails; its message begins with a verb."""


def follow_pickle(
    data: bytes, start: int = 0, shortcut: "Shortcut | None" = None
) -> FollowedPickle:
    """Follow the pickle at byte `start`; a fault is returned as a part of the result."""
    machine = Machine(shortcut)
    stream = BytesIO(data)
    stream.seek(start)
    value, fault = None, None
    try:
        value = machine.run(stream)
    except EOFError:
        reason = f"is cut off: it has not ended at byte {len(data):,}"
        fault = PickleFault(reason=reason, may_go_on=False, truncated=True)
    except (_ImpossibleError, IndexError, KeyError) as error:
        reason = str(error) if isinstance(error, _ImpossibleError) else "uses a missing value"
        fault = PickleFault(reason=f"{reason} at byte {machine.at:,}", may_go_on=False)
    except _NotFollowedError as error:
        fault = PickleFault(reason=f"{error} at byte {machine.at:,}", may_go_on=True)
    if fault and 0 < machine.frame < stream.tell():  # an unpickler discards the rest of the frame
        reason = f"has a frame that ends inside an opcode at byte {machine.at:,}"
        fault = PickleFault(reason=reason, may_go_on=True)
    return FollowedPickle(
        value=value,
        stop=stream.tell(),
        outside=machine.lines(is_complete=fault is None),
        refused=tuple(machine.refused),
        persistent=tuple(machine.persistent),
        fault=fault,
        is_calling=bool(machine.calls),
    )


class Shortcut(Protocol):
    """A function that follows many opcodes at once, which begin with one of `starts`.

    It pushes what they push, adds the memo's places that it leaves empty to `skipped`, and returns
    the offset after them; None if the opcodes have to be followed one by one.
    """

    starts: frozenset[bytes]

    def __call__(self, machine: "Machine", at: int) -> int | None: ...


class Machine:
    """An unpickler's stack and memo, with records in place of objects."""

    def __init__(self, shortcut: Shortcut | None = None) -> None:
        self.shortcut = shortcut
        self.skipped = 0  # places of the memo that a shortcut left empty
        self.at = 0  # offset of the opcode
        self.frame = 0  # offset after the frame; 0 outside of frames
        self.steps = MAX_STEPS
        self.stack: list[object] = []
        self.marked: list[list[object]] = []  # the stacks below the marks
        self.memo: dict[int, object] = {}
        self.used: set[int] = set()  # ids of objects that were read from the memo
        # The offset of the first import of each unknown name, and its first call.
        self.outside: dict[Global, int] = {}
        self.calls: dict[Global, Call] = {}
        self.refused: dict[str, None] = {}
        self.persistent: list[Persistent] = []

    def run(self, stream: BytesIO) -> object:
        """Return the value that the pickle builds; raise EOFError if the bytes end too early."""
        while True:
            self.at = stream.tell()
            code = stream.read(1)
            if not code:
                raise EOFError
            self.check_frame(self.at)
            if self.shortcut and code in self.shortcut.starts:
                self.spend()
                if stop := self.shortcut(self, self.at):
                    stream.seek(stop)
                    continue
            if code == b".":
                self.check_frame(self.at + 1)
                if self.frame > self.at + 1:
                    raise _NotFollowedError("ends before its frame does")
                return self.stack.pop()
            if code not in _OPCODES:
                raise _ImpossibleError(f"has the byte 0x{code[0]:02x} in place of an opcode")
            name, protocol, read = _OPCODES[code]
            step = _STEPS.get(name)
            if step is None:
                raise self.not_followed(name, stream)
            if protocol >= _REFUSED_PROTOCOL or name in _REFUSED_OPCODES:
                self.refused[f"opcodes of pickle protocol {protocol}"] = None
            self.spend()
            step(self, read(stream) if read else None)

    def spend(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise _NotFollowedError(f"takes more than {MAX_STEPS:,} steps")

    def not_followed(self, name: str, stream: BytesIO) -> Exception:
        """Return the error for an opcode that is not followed or that every unpickler refuses."""
        is_empty = not (self.stack or self.marked)
        lacks_mark = name in _TO_MARK and not self.marked
        if name in _PREPARED or lacks_mark or (is_empty and name in _TAKING):
            return _ImpossibleError(f"uses the opcode {name} with nothing to take")
        if name in _ASCII and not stream.readline().isascii():
            return _ImpossibleError(f"uses the opcode {name} with bytes that are not text")
        return _NotFollowedError(f"uses the opcode {name}")

    def check_frame(self, at: int) -> None:
        """End the frame if `at` is its end; raise if an opcode crosses the end.

        Unpicklers differ in how they read such an opcode.
        """
        if self.frame and at >= self.frame:
            if at > self.frame:
                raise _NotFollowedError("has a frame that ends inside an opcode")
            self.frame = 0

    # --- stack and memo ---

    def push(self, value: object) -> None:
        self.stack.append(value)

    def make(self, value: object) -> None:
        self.steps -= _MAKING - 1
        self.stack.append(value)

    def mark(self) -> None:
        self.marked.append(self.stack)
        self.stack = []

    def to_mark(self) -> list[object]:
        items, self.stack = self.stack, self.marked.pop()
        return items

    def tuple_of(self, count: int) -> None:
        items = [self.stack.pop() for _ in range(count)]
        self.make(tuple(reversed(items)))

    def put(self, index: int) -> None:
        if index > MAX_STEPS:
            raise _NotFollowedError(f"fills place {index:,} of its memo")
        self.shortcut = None  # a place may be filled again, which a shortcut does not expect
        self.memo[index] = self.stack[-1]

    def memoize(self) -> None:
        self.memo[len(self.memo) + self.skipped] = self.stack[-1]

    def get(self, index: int) -> None:
        value = self.memo[index]
        self.used.add(id(value))
        self.stack.append(value)

    # --- containers ---

    def filled(self) -> object:
        """Return the container on top of the stack; raise if it has already been used."""
        target = self.stack[-1]
        if id(target) in self.used:
            raise _NotFollowedError(f"fills {kind(target)} that was used before")
        return target

    def append(self, items: list[object]) -> None:
        target = self.filled()
        if isinstance(target, list):
            target.extend(items)
        elif not self.is_outside(target):
            raise _NotFollowedError(f"appends to {kind(target)}")

    def add(self, items: list[object]) -> None:
        target = self.filled()
        if isinstance(target, PickledSet) and all(map(is_key, items)):
            target.items.extend(items)
        elif not self.is_outside(target):
            raise _NotFollowedError(f"adds to {kind(target)}")

    def set_item(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.set_items([key, value])

    def set_items(self, items: list[object]) -> None:
        target, pairs = self.filled(), self.paired(items)
        if isinstance(target, PickledDict):
            target.pairs.extend(pairs)
        elif isinstance(target, Call) and (_is_dict(target) or self.is_outside(target)):
            target.pairs = target.pairs or []
            target.pairs.extend(pairs)
        elif not self.is_outside(target):
            raise _NotFollowedError(f"sets items of {kind(target)}")

    def paired(self, items: list[object]) -> list[tuple[object, object]]:
        """Return pairs of key and value; a key may be an unknown import, which is reported."""
        if len(items) % 2:
            raise _ImpossibleError("has a key without a value")
        pairs = list(zip(items[::2], items[1::2], strict=True))
        for key, _ in pairs:
            if not is_key(key) and not (isinstance(key, Global) and self.is_outside(key)):
                raise _NotFollowedError(f"has {kind(key)} for a key")
        return pairs

    def frozen_set(self) -> None:
        items = self.to_mark()
        if not all(map(is_key, items)):
            raise _NotFollowedError("puts a value into a set that cannot be in one")
        self.make(PickledSet(items))

    # --- imports and calls ---

    def import_name(self, module: object, name: object) -> None:
        if not (isinstance(module, str) and isinstance(name, str)):
            raise _NotFollowedError(f"imports {kind(name)} from {kind(module)}")
        imported = renamed(module, name)
        if not is_known(imported):
            self.outside.setdefault(imported, self.at)
        elif imported.path not in WEIGHTS_ONLY:
            self.refused[imported.path] = None
        self.make(imported)

    def import_lines(self, lines: tuple[bytes, bytes]) -> None:
        try:
            module, name = (line[:-1].decode() for line in lines)
        except UnicodeDecodeError:
            raise _ImpossibleError("imports a name that is not text") from None
        self.import_name(module, name)

    def import_from_stack(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.import_name(module, name)

    def is_outside(self, value: object) -> bool:
        """Return whether the value is an unknown name or the result of calling one."""
        while isinstance(value, Call):
            value = value.callee
        return isinstance(value, Global) and value in self.outside

    def call(self, construct: Callable[[Global, tuple[object, ...]], object | None]) -> None:
        args, callee = self.stack.pop(), self.stack.pop()
        if not isinstance(args, tuple):
            raise _NotFollowedError(f"calls with {kind(args)} in place of arguments")
        if self.is_outside(callee):
            result: object | None = Call(callee, args)
            if isinstance(callee, Global) and isinstance(result, Call):
                self.calls.setdefault(callee, result)
        elif isinstance(callee, Global):
            result = construct(callee, args)
            if result is None:
                raise _NotFollowedError(f"calls {callee.path} in a form that no library writes")
        else:
            raise _NotFollowedError(f"calls {kind(callee)}")
        self.make(result)

    def build(self) -> None:
        state = self.stack.pop()
        target = self.filled()
        if isinstance(target, Call) and (may_have_state(target, state) or self.is_outside(target)):
            target.state, target.has_state = state, True
        elif not self.is_outside(target):
            what = target.path if isinstance(target, Global) else kind(target)
            if isinstance(target, Call) and isinstance(target.callee, Global):
                what = f"an object of {target.callee.path}"
            raise _NotFollowedError(f"gives a state to {what}")

    def storage(self) -> None:
        """Push the record of a torch storage that the loader supplies; raise for other objects."""
        match key := self.stack.pop():
            case ("storage", Global() as name, *_) if name.path in WEIGHTS_ONLY:
                self.persistent.append(Persistent(key))
                self.make(self.persistent[-1])
            case _:
                raise _NotFollowedError("refers to an object that is not a storage")

    # --- words ---

    def protocol(self, version: int) -> None:
        if version > _PROTOCOLS:
            raise _ImpossibleError(f"is of protocol {version}")

    def open_frame(self, length: int) -> None:
        if self.frame:
            raise _NotFollowedError("opens a frame inside a frame")
        self.frame = self.at + 9 + length

    def python2(self, text: str) -> None:
        """Push a string of Python 2, whose bytes torch.load reads as UTF-8."""
        try:
            self.make(text.encode("latin-1").decode())
        except UnicodeDecodeError:
            raise _NotFollowedError("has a string of Python 2 that is not UTF-8") from None

    def lines(self, *, is_complete: bool) -> tuple[str, ...]:
        """Return a line for each unknown name, in the order of the pickle, up to MAX_LINES."""
        names = list(self.outside.items())
        shown = [
            f"{_called(name, self.calls.get(name), is_complete=is_complete)} at byte {at:,}"
            for name, at in names[:MAX_LINES]
        ]
        more = len(names) - len(shown)
        return (*shown, f"{more:,} more names") if more else tuple(shown)


def _is_dict(call: Call) -> bool:
    return isinstance(call.callee, Global) and call.callee.module == "collections"


# --- lines ----------------------------------------------------------------------------------------


def _called(name: Global, call: Call | None, *, is_complete: bool) -> str:
    """Return a call as text, such as `posix.system('id')`, or a clause if nothing is called."""
    if call is None:
        return f"{named(name.path)}{', imported and not called,' if is_complete else ''}"
    shown = [_argument(arg) for arg in call.args[:_ARGUMENTS]]
    more = ["..."] if len(call.args) > _ARGUMENTS else []
    return f"{named(name.path)}({', '.join([*shown, *more])})"


def _argument(value: object) -> str:
    match value:
        case str() | bytes():
            return quoted(value if isinstance(value, str) else value.decode("ascii", "replace"))
        case Global():
            return named(value.path)
        case int() if abs(value) >= _LONG:
            return "a long integer"
        case None | bool() | int() | float():
            return str(value)
        case _:
            return "..."


# --- opcodes --------------------------------------------------------------------------------------


def _two_lines(stream: BytesIO) -> tuple[bytes, bytes]:
    """Read the two lines of GLOBAL's argument as bytes; pickletools would decode escapes."""
    lines = stream.readline(), stream.readline()
    if not lines[1].endswith(b"\n"):
        raise EOFError
    return lines


def _reader(read: Callable[[Any], Any]) -> Callable[[BytesIO], Any]:
    """Wrap a reader of pickletools; it raises EOFError if the bytes end inside the argument."""

    def reading(stream: BytesIO) -> Any:
        try:
            return read(stream)
        except ValueError as error:
            if not stream.read(1):
                raise EOFError from None
            if isinstance(error, UnicodeDecodeError):
                raise _ImpossibleError("has a string that is not UTF-8") from None
            raise _NotFollowedError(
                "has an argument in a form that pickle does not write"
            ) from None

    return reading


_OPCODES: dict[bytes, tuple[str, int, Callable[[BytesIO], Any] | None]] = {
    one.code.encode("latin-1"): (one.name, one.proto, _reader(one.arg.reader) if one.arg else None)
    for one in pickletools.opcodes
} | {b"c": ("GLOBAL", 0, _two_lines)}

# Opcodes that need an extension registry or an external buffer; torch.load has neither.
_PREPARED = frozenset({"EXT1", "EXT2", "EXT4", "NEXT_BUFFER"})
# Opcodes that take something from the stack, or need a mark on it.
_TAKING = frozenset(one.name for one in pickletools.opcodes if one.stack_before)
# Opcodes that take everything above a mark; INST imports before it looks for the mark.
_TO_MARK = frozenset({"OBJ", "LIST", "DICT", "POP_MARK"})
_ASCII = frozenset({"INT", "LONG", "FLOAT", "PERSID", "GET", "PUT"})

_Step = Callable[[Machine, Any], None]
_push: _Step = Machine.push
_make: _Step = Machine.make
_STEPS: dict[str, _Step] = {
    "PROTO": Machine.protocol,
    "FRAME": Machine.open_frame,
    # values
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"), _push),
    **dict.fromkeys(("BINUNICODE", "SHORT_BINUNICODE"), _make),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES"), _make),
    **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING"), Machine.python2),
    "BYTEARRAY8": lambda m, content: m.make(bytes(content)),
    "NONE": lambda m, _: m.push(None),
    "NEWTRUE": lambda m, _: m.push(True),  # noqa: FBT003 - takes no keyword
    "NEWFALSE": lambda m, _: m.push(False),  # noqa: FBT003 - as above
    # stack and memo
    "MARK": lambda m, _: m.mark(),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), Machine.put),
    "MEMOIZE": lambda m, _: m.memoize(),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), Machine.get),
    # containers
    "EMPTY_TUPLE": lambda m, _: m.push(()),
    "TUPLE1": lambda m, _: m.tuple_of(1),
    "TUPLE2": lambda m, _: m.tuple_of(2),
    "TUPLE3": lambda m, _: m.tuple_of(3),
    "TUPLE": lambda m, _: m.make(tuple(m.to_mark())),
    "EMPTY_LIST": lambda m, _: m.make([]),
    "APPEND": lambda m, _: m.append([m.stack.pop()]),
    "APPENDS": lambda m, _: m.append(m.to_mark()),
    "EMPTY_DICT": lambda m, _: m.make(PickledDict([])),
    "SETITEM": lambda m, _: m.set_item(),
    "SETITEMS": lambda m, _: m.set_items(m.to_mark()),
    "EMPTY_SET": lambda m, _: m.make(PickledSet([])),
    "ADDITEMS": lambda m, _: m.add(m.to_mark()),
    "FROZENSET": lambda m, _: m.frozen_set(),
    # what would be imported and called
    "GLOBAL": Machine.import_lines,
    "STACK_GLOBAL": lambda m, _: m.import_from_stack(),
    "REDUCE": lambda m, _: m.call(result_of),
    "NEWOBJ": lambda m, _: m.call(new_object),
    "BUILD": lambda m, _: m.build(),
    "BINPERSID": lambda m, _: m.storage(),
}
# What torch.load(weights_only=True) does not read: opcodes for bytes, and those of protocol 4.
_REFUSED_OPCODES = frozenset({"BINSTRING", "BINBYTES", "SHORT_BINBYTES"})
_REFUSED_PROTOCOL = 4
