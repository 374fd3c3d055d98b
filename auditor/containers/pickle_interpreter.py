"""A pickle's opcodes, followed without doing anything: no import, no call, no attribute is set.

What the pickle would import is a Global, what it would call or make is a Call; both are records.
Protocols 0 to 5. Everything is bounded, because a pickle is a program that a stranger wrote.
"""

import struct
from collections.abc import Callable

from auditor.containers import pickle_reader as arguments
from auditor.containers.pickle_machine import MAX_OPCODES, Machine
from auditor.containers.pickle_reader import FaultError, TruncatedError
from auditor.containers.pickle_values import Octets, PickledDict, PickledSet, Ran


def follow_pickle(data: bytes, start: int = 0) -> Ran:
    """What the pickle at `start` says. Never raises: a fault is part of what was found."""
    machine = Machine(data, start)
    value, fault, truncated = None, None, False
    try:
        value = _run(machine)
    except TruncatedError:
        fault, truncated = f"is cut off: it has not ended at byte {len(data):,}", True
    except FaultError as error:
        fault = f"{error} at byte {machine.at:,}"
    return Ran(
        value=value,
        stop=machine.position,
        globals=tuple(machine.globals),
        calls=tuple(machine.calls),
        persistent=tuple(machine.kept),
        fault=fault,
        truncated=truncated,
    )


def _run(machine: Machine) -> object:
    data, steps = machine.data, _STEPS
    for _ in range(MAX_OPCODES):
        machine.at = machine.position
        if machine.at == machine.end:
            machine.leave_frame()
        machine.position += 1
        code = data[machine.at]
        if code == _STOP:
            return machine.stop()
        step = steps.get(code)
        if step is None:
            raise FaultError(f"has the byte 0x{code:02x} in place of an opcode")
        step(machine)
    raise FaultError(f"has more than {MAX_OPCODES:,} opcodes")


_Step = Callable[[Machine], object]


def _constant(value: object) -> _Step:
    return lambda machine: machine.stack.append(value)


_STOP = ord(".")
_STEPS: dict[int, _Step] = {
    # framing
    0x80: Machine.protocol,
    0x95: Machine.frame,
    # numbers and constants
    ord("N"): _constant(None),
    0x88: _constant(True),  # noqa: FBT003 - takes no keyword
    0x89: _constant(False),  # noqa: FBT003 - as above
    ord(")"): _constant(()),
    ord("K"): lambda m: m.stack.append(m.number(1)),
    ord("M"): lambda m: m.stack.append(m.number(2)),
    ord("J"): lambda m: m.stack.append(m.number(4, signed=True)),
    ord("G"): lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
    ord("I"): lambda m: m.stack.append(arguments.integer_or_bool(m.line())),
    ord("L"): lambda m: m.stack.append(arguments.integer(m.line().removesuffix(b"L"))),
    ord("F"): lambda m: m.push(arguments.floating(m.line())),
    0x8A: lambda m: m.long(1),
    0x8B: lambda m: m.long(4),
    # strings
    ord("S"): lambda m: m.push(arguments.string(m.line())),
    ord("V"): lambda m: m.push(arguments.escaped(m.line())),
    ord("U"): lambda m: m.python2(1),
    ord("T"): lambda m: m.python2(4),
    ord("X"): lambda m: m.text(4),
    0x8C: lambda m: m.text(1),
    0x8D: lambda m: m.text(8),
    ord("C"): lambda m: m.push(m.sized(1)),
    ord("B"): lambda m: m.push(m.sized(4)),
    0x8E: lambda m: m.push(m.sized(8)),
    0x96: lambda m: m.push(Octets(len(m.sized(8)))),
    # stack and memo
    ord("("): Machine.mark,
    ord("0"): Machine.drop,
    ord("1"): Machine.to_mark,
    ord("2"): lambda m: m.stack.append(m.top()),
    ord("p"): lambda m: m.put(arguments.index(m.line())),
    ord("q"): lambda m: m.put(m.number(1)),
    ord("r"): lambda m: m.put(m.number(4)),
    0x94: lambda m: m.put(len(m.memo)),
    ord("g"): lambda m: m.get(arguments.index(m.line())),
    ord("h"): lambda m: m.get(m.number(1)),
    ord("j"): lambda m: m.get(m.number(4)),
    # containers
    ord("t"): lambda m: m.push(m.tuple_with(m.to_mark())),
    0x85: lambda m: m.tuple_of(1),
    0x86: lambda m: m.tuple_of(2),
    0x87: lambda m: m.tuple_of(3),
    ord("]"): lambda m: m.push([]),
    ord("l"): lambda m: m.push(m.to_mark()),
    ord("a"): lambda m: m.append([m.pop()]),
    ord("e"): lambda m: m.append(m.to_mark()),
    ord("}"): lambda m: m.push(PickledDict([])),
    ord("d"): lambda m: m.push(PickledDict(m.paired(m.to_mark()))),
    ord("s"): Machine.set_item,
    ord("u"): lambda m: m.set_items(m.to_mark()),
    0x8F: lambda m: m.push(PickledSet([], frozen=False)),
    0x90: lambda m: m.add(m.to_mark()),
    0x91: lambda m: m.push(PickledSet(m.hashed(m.to_mark()), frozen=True)),
    # what would be imported and called
    ord("c"): lambda m: m.push(m.named_global()),
    0x93: Machine.stacked_global,
    ord("R"): lambda m: m.reduce("REDUCE"),
    0x81: lambda m: m.reduce("NEWOBJ"),
    0x92: Machine.new_object_ex,
    ord("i"): Machine.instance,
    ord("o"): Machine.object_of,
    ord("b"): Machine.build,
    ord("P"): lambda m: m.persistent(arguments.ascii_line(m.line())),
    ord("Q"): lambda m: m.persistent(m.pop()),
    # what only a program that prepared for it can load
    0x82: lambda m: m.refuse("asks for an object by a copyreg extension code"),
    0x83: lambda m: m.refuse("asks for an object by a copyreg extension code"),
    0x84: lambda m: m.refuse("asks for an object by a copyreg extension code"),
    0x97: lambda m: m.refuse("asks for a buffer from outside the file"),
    0x98: lambda m: m.refuse("asks for a buffer from outside the file"),
}
