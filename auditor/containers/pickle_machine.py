"""An unpickler's stack and memo, bounded, on records in place of objects.

What CPython's unpickler in C does with an opcode is done here, or is a fault.
"""

from auditor.containers import pickle_reader as arguments
from auditor.containers.pickle_reader import MAX_LONG, FaultError, Reader
from auditor.containers.pickle_values import (
    Call,
    Global,
    Octets,
    Persistent,
    PickledDict,
    PickledSet,
    is_class,
    kind,
)

# Bounds. One tensor of a state dict takes 190 bytes, 40 opcodes, 12 objects and 11 entries of the
# memo (BERT and Llama, torch 2.13), so that there is room for 16,000 tensors in one file. With all
# the bounds reached at once an audit takes 0.4 s and 36 MB more than usual.
MAX_OPCODES = 1_000_000
MAX_OBJECTS = 200_000  # containers, strings, records; numbers are bounded by the opcodes
MAX_MEMO = 200_000
MAX_MARKS = 10_000  # set and not gone back to: pickle itself recurses a thousand levels deep
MAX_HANDED = 1_000_000  # values in the arguments of all calls, ten of which each tensor has
MAX_TEXT = 1024 * 1024  # bytes of one string

_FILLED = frozenset({list, PickledDict, Octets, PickledSet})  # what can be filled once it is made
_DEEPEST = 4  # levels of a call's arguments that are kept as they were when it was made


class Machine(Reader):
    """The unpickler's stack and memo; each method named after opcodes does what they do."""

    def __init__(self, data: bytes, start: int) -> None:
        super().__init__(data, start)
        self.stack: list[object] = []
        self.below: list[list[object]] = []  # the stacks under the marks
        self.memo: dict[int, object] = {}
        self.globals: dict[Global, None] = {}
        self.calls: list[Call] = []
        self.kept: list[Persistent] = []
        self.objects = 0
        self.handed = 0
        self.unhashable: dict[int, object] = {}  # tuples that hold what can be filled, by id

    # --- stack and memo ---

    def stop(self) -> object:
        self.require_end()
        return self.pop()

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
        if len(self.below) >= MAX_MARKS:
            raise FaultError(f"sets more than {MAX_MARKS:,} marks, one upon the other")
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
        if index > MAX_OPCODES:  # the unpickler in C makes room for as many, and may have none
            raise FaultError(f"remembers an object at place {index:,} of its memo")
        self.memo[index] = self.top()

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise FaultError(f"recalls object {index:,}, which it did not remember")
        self.stack.append(self.memo[index])

    # --- values ---

    def sized(self, width: int) -> bytes:
        length = self.number(width)
        if length > MAX_TEXT:
            raise FaultError(f"has a string of {length:,} bytes; {MAX_TEXT:,} are the most read")
        return self.take(length)

    def long(self, width: int) -> None:
        length = self.number(width, signed=width == 4)  # noqa: PLR2004 - LONG4's is signed
        if not 0 <= length <= MAX_LONG:
            raise FaultError(f"has an integer of {length:,} bytes; {MAX_LONG} are the most read")
        self.stack.append(self.number(length, signed=True))

    def text(self, width: int) -> None:
        self.push(arguments.text(self.sized(width)))

    def python2(self, width: int) -> None:
        self.push(arguments.python2(self.sized(width)))

    def tuple_of(self, count: int) -> None:
        if len(self.stack) < count:
            raise FaultError("pops from an empty stack")
        items = self.stack[len(self.stack) - count :]
        del self.stack[len(self.stack) - count :]
        self.push(self.tuple_with(items))

    def tuple_with(self, items: list[object]) -> tuple[object, ...]:
        made = tuple(items)
        suspect = self.unhashable or not _FILLED.isdisjoint(map(type, items))
        if suspect and any(map(self.is_unhashable, items)):
            self.unhashable[id(made)] = made
        return made

    def is_unhashable(self, value: object) -> bool:
        if isinstance(value, tuple):
            return id(value) in self.unhashable
        return isinstance(value, list | PickledDict | Octets) or (
            isinstance(value, PickledSet) and not value.frozen
        )

    # --- containers ---

    def append(self, items: list[object]) -> None:
        target = self.top()
        if isinstance(target, list):
            target.extend(items)
        elif not isinstance(target, Call):  # what a made object does with its items is not kept
            raise FaultError(f"appends to {kind(target)}")

    def add(self, items: list[object]) -> None:
        target = self.top()
        if isinstance(target, PickledSet) and not target.frozen:
            target.items.extend(self.hashed(items))
        elif not isinstance(target, Call):  # as above
            raise FaultError(f"adds to {kind(target)}")

    def set_item(self) -> None:
        value = self.pop()
        self.set_items([self.pop(), value])

    def set_items(self, items: list[object]) -> None:
        target, pairs = self.top(), self.paired(items)
        if isinstance(target, Call) and target.pairs is None:
            target.pairs = []
        kept = target.pairs if isinstance(target, PickledDict | Call) else None
        if kept is None:
            raise FaultError(f"sets items of {kind(target)}")
        kept.extend(pairs)

    def paired(self, items: list[object]) -> list[tuple[object, object]]:
        if len(items) % 2:
            raise FaultError("has a key without a value")
        return list(zip(self.hashed(items[::2]), items[1::2], strict=True))

    def hashed(self, items: list[object]) -> list[object]:
        """What may be in a set or be a key of a dict; a fault where something may not."""
        wrong = next(filter(self.is_unhashable, items), None)
        if wrong is not None:
            raise FaultError(f"has {kind(wrong)} for a key, or in a set")
        return items

    # --- what would be imported, called or given state ---

    def found(self, module: str, name: str) -> Global:
        value = Global(module, name)
        self.globals[value] = None
        return value

    def named_global(self, encoding: str = "utf-8") -> Global:
        module = arguments.name(self.line(), encoding)
        return self.found(module, arguments.name(self.line(), encoding))

    def stacked_global(self) -> None:
        name, module = self.pop(), self.pop()
        if not (isinstance(module, str) and isinstance(name, str)):
            raise FaultError(f"imports {kind(name)} from {kind(module)}")
        self.push(self.found(module, name))

    def called(self, how: str, callee: object, args: object) -> None:
        if not (isinstance(callee, Global) or is_class(callee)):
            made = isinstance(callee, Call) and not how.startswith("NEWOBJ")
            if not made:
                raise FaultError(f"calls {kind(callee)}")
        if not isinstance(args, tuple):
            raise FaultError(f"calls with {kind(args)} where a tuple of arguments belongs")
        if id(args) in self.unhashable:  # else nothing in it can be filled
            args = self.as_it_is(args, _DEEPEST)
        call = Call(how, callee, args)
        self.calls.append(call)
        self.push(call)

    def as_it_is(self, value: object, levels: int) -> object:
        """The value as a call sees it: lists and dicts in it may be filled further afterwards."""
        if not levels or not isinstance(value, tuple | list | PickledDict):
            return value
        if isinstance(value, PickledDict):
            self.hand(len(value.pairs))
            return PickledDict([*value.pairs])
        self.hand(len(value))
        items = [self.as_it_is(one, levels - 1) for one in value]
        return items if isinstance(value, list) else tuple(items)

    def hand(self, count: int) -> None:
        self.handed += count
        if self.handed > MAX_HANDED:
            raise FaultError(f"hands more than {MAX_HANDED:,} values to what it calls")

    def reduce(self, how: str) -> None:
        args = self.pop()
        self.called(how, self.pop(), args)

    def new_object_ex(self) -> None:
        keywords, args = self.pop(), self.pop()
        if not (isinstance(args, tuple) and isinstance(keywords, PickledDict)):
            raise FaultError(f"makes an object with {kind(args)} and {kind(keywords)}")
        self.called("NEWOBJ_EX", self.pop(), self.tuple_with([args, keywords]))

    def instance(self) -> None:
        items = self.to_mark()
        self.called("INST", self.named_global("ascii"), self.tuple_with(items))

    def object_of(self) -> None:
        items = self.to_mark()
        if not items:
            raise FaultError("pops from an empty stack")
        self.called("OBJ", items[0], self.tuple_with(items[1:]))

    def build(self) -> None:
        state, target = self.pop(), self.top()
        if not isinstance(target, Global | Call | Persistent):
            if state is not None:
                raise FaultError(f"gives a state to {kind(target)}")
            return
        if not isinstance(target, Call):  # an import, given state, is a module that is changed
            target = Call("BUILD", target, ())
            self.calls.append(target)
        target.state, target.built = state, True

    def persistent(self, key: object) -> None:
        self.kept.append(Persistent(key))
        self.push(self.kept[-1])

    def refuse(self, why: str) -> None:
        raise FaultError(why)
