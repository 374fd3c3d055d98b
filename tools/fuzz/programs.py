"""Pickles for the fuzzer, sound and hostile, and changes of their opcodes."""

import collections
import io
import pickle
import pickletools
import struct
import warnings
from functools import cache
from random import Random
from typing import Any

import torch

from fuzz.byte_changes import changed_bytes

HOSTILE = b"\x80\x02cposix\nsystem\nX\x02\0\0\0:;\x85R."
CALL = HOSTILE[2:-1]


class _Called:
    def __reduce__(self) -> tuple[Any, ...]:
        return eval, ("1",)  # pickled and never loaded


class _Slotted:
    def __init__(self) -> None:
        self.a = {"b": [1, (2, 3)]}


def values() -> list[Any]:
    """Values without tensors for pickle and torch.save."""
    held: list[Any] = [
        None,
        True,
        0,
        -1,
        2**40,
        -(2**300),
        1.5,
        float("inf"),
        "é\n",
        "\ud800",
        b"\xff",
    ]
    held += [[], (), {}, set(), frozenset(), bytearray(b"ab"), {1, 2}, frozenset((1, "a"))]
    held += [[[1], (1, 2, 3, 4), {"a": {"b": [None]}}], {1: 2, "1": 3, (1, 2): 4, None: 5}]
    held += [collections.OrderedDict(a=1), collections.Counter("ab"), collections.defaultdict(list)]
    held += [complex(1, 2), range(3), slice(1), "x" * 300, b"y" * 300, _Slotted(), _Called()]
    loop: list[Any] = []
    loop.append(loop)
    return [*held, loop, [held[:8], held[:8]], {"a" * n: n for n in range(40)}]


def states() -> list[Any]:
    """Values of checkpoint files: tensors by name, and what training scripts add."""
    linear = torch.nn.Linear(3, 2)
    weight = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    tied = collections.OrderedDict(a=weight, b=weight.T, c=weight[1:], d=weight)
    kinds = (torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool, torch.complex64)
    dtypes = {str(kind)[6:]: torch.zeros(2, dtype=kind) for kind in kinds}
    odd = {"n": torch.tensor(3), "e": torch.empty(0, 2), "p": torch.nn.Parameter(weight)}
    return [
        {"a": weight},
        linear.state_dict(),
        tied,
        dtypes,
        odd,
        {"epoch": 1, "model": linear.state_dict(), "args": {"lr": 0.1, "betas": (0.9, 0.99)}},
        {"state_dict": {"l": [torch.zeros(2), torch.ones(1)]}, "s": {1, 2}, "o": torch.Size([2])},
        {"q": torch.zeros(2, 2).to(torch.float8_e4m3fn), "u": torch.zeros(2, dtype=torch.uint16)},
    ]


@cache
def pickles() -> tuple[bytes, ...]:
    """Pickles of the values in all protocols, and hand-made ones that no pickler writes now."""
    found = [pickle.dumps(value, protocol) for value in values() for protocol in range(6)]
    found += [data for data in map(_data_pkl, files()) if data]
    return (*found, *HANDMADE)


def _data_pkl(content: bytes) -> bytes | None:
    if not content.startswith(b"PK"):
        return None
    return bytes(torch._C.PyTorchFileReader(io.BytesIO(content)).get_record("data.pkl"))


@cache
def saved() -> tuple[tuple[bytes, list[bytes]], ...]:
    """The pickle and the storages of each file in the zip form, and of some made by hand."""
    found = []
    for content in files():
        if content.startswith(b"PK"):
            reader = torch._C.PyTorchFileReader(io.BytesIO(content))
            names = [name for name in reader.get_all_records() if name.startswith("data/")]
            names.sort(key=lambda name: int(name[5:]))
            storages = [bytes(reader.get_record(name)) for name in names]
            found.append((bytes(reader.get_record("data.pkl")), storages))
    return (*found, *((b"\x80\2}(X\1\0\0\0a" + made + b"u.", [bytes(24)]) for made in _MADE))


# A tensor of two rows of three; and what gives it another shape or dtype once it is made.
_STORAGE = b"(X\7\0\0\0storagectorch\n%s\nX\1\0\0\x000X\3\0\0\0cpuK\6tQ"
_FLOATS, _INTS = _STORAGE % b"FloatStorage", _STORAGE % b"IntStorage"
_HOOKS = b"\x89ccollections\nOrderedDict\n)R"
_V2 = b"ctorch._utils\n_rebuild_tensor_v2\n"
_TENSOR = _V2 + b"(" + _FLOATS + b"K\0K\2K\3\x86K\3K\1\x86" + _HOOKS + b"tR"
_OTHER = _V2 + b"(" + _INTS + b"K\0K\6\x85K\1\x85" + _HOOKS + b"tR"
_MADE = (
    _TENSOR,
    _TENSOR + b"X\1\0\0\0b" + _OTHER,
    _TENSOR + b"(" + _FLOATS + b"K\0K\1\x85K\1\x85tb",
    _TENSOR + b"(" + _FLOATS + b"K\0K\1\x85tb",
    b"ctorch._utils\n_rebuild_parameter_with_state\n(" + _TENSOR + b"\x89ccollections\n"
    b"OrderedDict\n)R}X\4\0\0\0data" + _OTHER + b"stR",
    b"ctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\nctorch\nTensor\n"
    b"(" + _FLOATS + b"K\0K\2K\3\x86K\3K\1\x86" + _HOOKS + b"t}X\4\0\0\0data" + _OTHER + b"stR",
    _V2 + b"(" + _FLOATS + b"K\0]q\7(K\2K\3e]q\x08(K\3K\1e" + _HOOKS + b"tRh\7K\1a0h\x08K\1a0",
    b"ccollections\nOrderedDict\n(](]X\1\0\0\0b" + _TENSOR + b"\x86ae\x85R",
    b"ccollections\nOrderedDict\n]q\x09\x85Rh\x09X\1\0\0\0b" + _TENSOR + b"\x86a0",
    b"ccollections\nOrderedDict\n]X\1\0\0\0b" + _TENSOR + b"\x86a\x85\x81",
    b"ccollections\nOrderedDict\n)R}X\4\0\0\0keysc__builtin__\ndict\nsb",
    b"ccollections\nCounter\n}X\1\0\0\0b" + _TENSOR + b"s\x85R",
    _TENSOR + b"X\3\0\0\0c.d" + _TENSOR + b"X\1\0\0\0c}X\1\0\0\0d" + _OTHER + b"s",
    _TENSOR + b"K\1" + _TENSOR + b"X\1\0\0\x001" + _OTHER + b"\x88" + _OTHER,
    b"ctorch.nn.parameter\nParameter\n" + _TENSOR + b"\x85R",
    b"ctorch.nn.parameter\nParameter\n" + _TENSOR + b"\x85R(\x89\x89Ntb",
)


def numbers(data: bytes, random: Random) -> bytes:
    """Change small whole numbers: the dimensions, strides and offsets of tensors."""
    parts = opcodes(data)
    places = [place for place, part in enumerate(parts) if part[:1] in {b"K", b"M", b"J"}]
    for _ in range(random.choice((1, 1, 2, 3))):
        if places:
            small = random.choice((b"K\0", b"K\1", b"K\2", b"K\3", b"K\6", b"N", b"\x88"))
            huge = random.choice((b"J\xff\xff\xff\xff", b"\x8a\x08" + b"\xff" * 7 + b"\x7f"))
            parts[random.choice(places)] = random.choice((small, small, small, huge))
    return b"".join(parts)


@cache
def files() -> tuple[bytes, ...]:
    """The states as torch.save writes them, in both forms and four protocols."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for state in states():
            for zipped in (True, False):
                for protocol in (2, 3, 4, 5):
                    out = io.BytesIO()
                    torch.save(
                        state,
                        out,
                        pickle_protocol=protocol,
                        _use_new_zipfile_serialization=zipped,
                    )
                    found.append(out.getvalue())
    return tuple(found)


def _frame(length: int) -> bytes:
    return b"\x95" + struct.pack("<Q", length)


def _short(text: bytes) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text


# What follows a FRAME that ends inside the argument of the opcode behind it: the unpickler in C
# drops the rest of the frame and goes on behind it, where another opcode waits.
CROSSING = (
    b"\x80\x04" + _frame(6) + b"N0X\xff\0\0" + b"\2\0\0\0ab" + CALL + b".",
    b"\x80\x04" + _frame(12) + b"cos\nsystem\nX" + CALL + b"." + bytes(80) + b".",
    b"\x80\x04" + _frame(4) + b"Nc12" + b"os\nsystem\n(X\2\0\0\0:;tR.",
    b"\x80\x04" + _frame(2) + b"N." + CALL + b".",
    b"\x80\x04" + _frame(20) + b"N" + _frame(3) + b"0N0" + CALL[:7] + CALL[7:] + b".",
    b"\x80\x04" + _frame(1) + b"N" + _frame(1) + b"0" + _frame(0) + b"}.",
)
HANDMADE = (
    HOSTILE,
    b"(S'id'\nios\nsystem\n.",
    b"(cos\nsystem\nS'id'\no.",
    b"\x80\x04" + _short(b"os") + _short(b"system") + b"\x93" + _short(b"id") + b"\x85R.",
    b"cbuiltins\neval\n(V1+1\ntR.",
    b"ccollections\nOrderedDict\n(]q\0(]q\1(S'a'\nI1\neetRh\0]a0.",
    b"ctorch\nSize\n(]q\0(K\1K\2etRh\0K\3a0.",
    b"ccollections\nOrderedDict\n)R}(X\4\0\0\0keysctorch\nSize\nub.",
    b"S'a\\x41\\'\\n'\nq\0I00\nI01\nI1\nL5L\nF1.5\n(ltp1\n0g1\n.",
    b"U\2\xc3\xa9T\2\0\0\0ab\x86.",
    b"S'\\157s'\n.",
    b"I0x1f\n.",
    b"I010\n.",
    b"p1_0\n.",
    b"Pabc\n.",
    b"(X\6\0\0\0moduleccollections\nOrderedDict\nNNtQ.",
    b"]Nb.",
    b"ctorch\nSize\n}b.",
    b"]]}b.",
    b"(lp0\n(lp1\nag0\na.",
    b"N(e.",
    b"\x8f(K\1]\x90.",
    b"}(]K\1u.",
    b"\x80\x04\x8c\x01aN\x93.",
    b"\x97\x98.",
    b"\x82\1\x83\1\0.",
    b"(((0000N.",
    b"\x94N\x94r\xff\xff\xff\x7fh\0.",
    b"\x8a\0\x8b\0\0\0\0\x86.",
    *CROSSING,
)

_SNIPPETS = (
    CALL,
    b"cos\nsystem\n",
    _short(b"os") + _short(b"system") + b"\x93",
    b"(S'id'\nios\nsystem\n",
    b"ccollections\nOrderedDict\n)R",
    b"}b",
    b"]a",
    b"(e",
    b"(u",
    b"q\0",
    b"h\0",
    b"\x94",
    b"2",
    b"0",
    b"(",
    b"1",
    b"N",
    b"K\1",
    b"]",
    b"}",
    b")",
    b"R",
    b"b",
    b"a",
    b"s",
    b".",
    b"\x80\2",
    b"\x80\4",
    _frame(0),
    _frame(3),
    _frame(40),
    b"I01\n",
    b"I0x1\n",
    b"L00L\n",
    b"F1e999\n",
    b"S'\\q'\n",
    b"S'\\143'\n",
    b"V\\u0041\n",
    b"\x8c\3\xed\xa0\x80",
    b"U\1\xff",
    b"X\4\0\0\0data",
    b"\x91",
    b"(\x90",
    b"\x98",
    b"\x92",
    b"\x81",
    b"Q",
    b"o",
    b"t",
    b"\x85",
)


def opcodes(data: bytes) -> list[bytes]:
    """The pickle cut at its opcodes, as far as it can be."""
    starts = []
    try:
        starts = [place for _, _, place in pickletools.genops(data) if place is not None]
    except Exception:  # noqa: BLE001 - whatever pickletools makes of a hostile one
        starts = starts or [0]
    stops = [*starts[1:], len(data)]
    return [data[start:stop] for start, stop in zip(starts, stops, strict=True)]


def mutated(data: bytes, random: Random) -> bytes:
    """One to three changes to bytes or opcodes."""
    for _ in range(random.choice((1, 1, 2, 3))):
        data = random.choice((_opcodes, _opcodes, _bytes, _framed))(data, random)
    return data


def _opcodes(data: bytes, random: Random) -> bytes:
    parts = opcodes(data) or [b""]
    at = random.randrange(len(parts))
    piece = random.choice((random.choice(_SNIPPETS), random.choice(parts)))
    match random.randrange(5):
        case 0:
            parts.insert(at, piece)
        case 1:
            del parts[at]
        case 2:
            parts[at] = piece
        case 3:
            other = random.randrange(len(parts))
            parts[at], parts[other] = parts[other], parts[at]
        case _:
            parts[at : at + 1] = parts[at : at + random.randrange(1, 6)] * 2
    return b"".join(parts)


_ODD_BYTES = (b"\0", b"\n", b"\xff", b"'", b".", b"L", b"\x95")


def _bytes(data: bytes, random: Random) -> bytes:
    return changed_bytes(data, random, _ODD_BYTES)


def _framed(data: bytes, random: Random) -> bytes:
    """A frame around some of the opcodes, whose length is true or nearly so."""
    parts = opcodes(data)
    start = random.randrange(len(parts) + 1)
    stop = random.randrange(start, len(parts) + 1)
    inside = b"".join(parts[start:stop])
    length = max(0, len(inside) + random.choice((0, 0, 0, -1, 1, -3, 5)))
    return b"".join((*parts[:start], _frame(length), inside, *parts[stop:]))
