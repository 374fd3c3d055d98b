"""Pickles are followed and never loaded: what comes out is what pickle wrote, or a fault."""

import collections
import io
import os
import pickle
import pickletools
import struct
import zipfile

import pytest
from auditor.containers.pickle_imports import KNOWN, unknown_imports
from auditor.containers.pickle_interpreter import follow_pickle
from hypothesis import given
from hypothesis import strategies as st
from support.torch_files import parsed

from auditor.containers.pickle_values import Call, Global, PickledDict

PROTOCOLS = range(6)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**300), 2**300)
    | st.floats(allow_nan=False)
    | TEXTS
    | st.binary(max_size=300)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(TEXTS | st.integers(), inner, max_size=4)
    ),
    max_leaves=12,
)


def plain(value):
    """The value that the records stand for, where pickle itself would give a plain one."""
    match value:
        case PickledDict(pairs=pairs):
            return {key: plain(one) for key, one in pairs}
        case Call(callee=Global("_codecs", "encode"), args=(text, "latin1")):
            return text.encode("latin1")
        case Call(callee=Global("__builtin__", "bytes"), args=()):
            return b""
        case list() | tuple():
            return type(value)(map(plain, value))
        case _:
            return value


@given(VALUES, st.sampled_from(PROTOCOLS))
def test_a_plain_value_comes_out_as_it_went_in(value, protocol):
    content = pickle.dumps(value, protocol=protocol)
    ran = follow_pickle(content)
    assert ran.fault is None
    assert plain(ran.value) == value
    assert ran.stop == len(content)
    assert unknown_imports(ran) == ()


@given(st.binary(max_size=300))
def test_no_bytes_whatever_make_it_raise(content):
    ran = follow_pickle(content)
    assert ran.fault is None or "\n" not in ran.fault
    unknown_imports(ran)


@given(VALUES, st.sampled_from(PROTOCOLS), st.data())
def test_no_change_to_a_pickle_makes_it_raise(value, protocol, data):
    content = bytearray(pickle.dumps({"a": value, "b": Called("x")}, protocol=protocol))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    unknown_imports(follow_pickle(bytes(content)))


@pytest.mark.parametrize("target", [b"]", b"}", b")", b"N", b"\x8f", b"(]t", b"Pa\n", b"cos\na\n"])
@pytest.mark.parametrize(
    "opcodes", [b"}b", b"Nb", b")R", b"(tb", b")\x81", b")}\x92", b"]a", b"]\x90"]
)
def test_no_opcode_on_any_value_makes_it_raise(target, opcodes):
    """BUILD on a list was the one that did: a list is no key of a table of names."""
    unknown_imports(follow_pickle(target + opcodes + b"."))
    unknown_imports(follow_pickle(b"(" + target + opcodes + b"N}b."))


@given(VALUES, st.sampled_from(PROTOCOLS), st.data())
def test_what_is_cut_off_is_said_to_be(value, protocol, data):
    content = pickle.dumps(value, protocol=protocol)
    ran = follow_pickle(content[: data.draw(st.integers(0, len(content) - 1))])
    assert ran.truncated
    assert "cut off" in ran.fault


@given(st.lists(VALUES, min_size=1, max_size=4), st.sampled_from(PROTOCOLS))
def test_pickles_that_follow_one_another_are_read_one_after_the_other(values, protocol):
    content = b"".join(pickle.dumps(value, protocol=protocol) for value in values)
    at = 0
    for value in values:
        ran = follow_pickle(content, at)
        assert plain(ran.value) == value
        at = ran.stop
    assert at == len(content)


def test_every_opcode_of_pickle_is_known():
    for opcode in pickletools.opcodes:
        fault = follow_pickle(opcode.code.encode("latin1") + bytes(16) + b"\n\n.").fault
        assert fault is None or f"0x{ord(opcode.code):02x} in place of" not in fault, opcode.name


class Called:
    """Pickles as a call of os.system, which nobody must make."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


class New:
    """Pickles by __new__, with a state."""

    def __init__(self):
        self.a = 1


SYSTEM = f"{os.system.__module__}.system"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_call_is_a_record_of_what_would_be_called(protocol, tmp_path):
    proof = tmp_path / "run"
    ran = follow_pickle(pickle.dumps({"a": Called(f"touch {proof}")}, protocol=protocol))
    assert ran.fault is None
    assert unknown_imports(ran) == (f"{SYSTEM}('touch {proof}')",)
    assert not proof.exists()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_object_is_a_record_of_how_it_would_be_made(protocol):
    ran = follow_pickle(pickle.dumps([New(), New()], protocol=protocol))
    [line] = unknown_imports(ran)
    name = f"{New.__module__}.New"
    if protocol < 2:
        assert line == f"{name}, imported and handed to copy_reg._reconstructor"
    else:
        assert line == f"{name}.__new__(), then given state, 2 times"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"cos\nsystem\n(S'id'\ntR.", "os.system('id')"),
        (b"(S'id'\nios\nsystem\n.", "os.system('id')"),
        (b"(cos\nsystem\nS'id'\no.", "os.system('id')"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.", "os.system('id')"),
        (b"\x80\x02cos\nsystem\nU\x02id\x85\x81.", "os.system.__new__('id')"),
        (b"\x80\x04cos\nsystem\n)}\x92.", "os.system.__new__(..., ...)"),
        (b"cbuiltins\neval\n(V1+1\ntR.", "builtins.eval('1+1')"),
        (b"cos\nsystem\n.", "os.system, imported and not called"),
        (b"cos\nsystem\n0N.", "os.system, imported and not called"),
        (b"cos\nsystem\n}b.", "os.system, imported, and its attributes are set"),
        (b"ctorch\nSize\n}b.", "torch.Size: its attributes are set"),
        (
            b"ctorch._tensor\n_rebuild_from_type_v2\n(cos\nsystem\nNNNtR.",
            "os.system, imported and handed to torch._tensor._rebuild_from_type_v2",
        ),
        (b"ctorch\nSize\n]b.", "torch.Size: its attributes are set"),
        (b"ctorch\nSize\n)R)R.", "what is not an import is called or given state, 1 times"),
        (b"c\x1b[2J\n\x07\n(tR.", "'\\x1b[2J.\\x07'()"),
        (b"ccollections\nOrderedDict.fromkeys\n)R.", "collections.OrderedDict.fromkeys()"),
        (b"cos\nsystem\n(tR0cos\nsystem\n(I1\ntR.", "os.system(), 2 times"),
        (b"cos\nsystem\n(S'id'\ntRa.", "os.system('id')"),  # a fault that comes too late
    ],
)
def test_whatever_way_it_is_called_a_strange_name_is_told(content, line):
    ran = follow_pickle(content)
    assert unknown_imports(ran) == (line,)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b".", "pops from an empty stack at byte 0"),
        (b"t.", "goes back to a mark that was not set at byte 0"),
        (b"(NNR.", "calls a value of type NoneType"),
        (b"cos\nsystem\n]R.", "calls with a value of type list where a tuple"),
        (b"]K\1b.", "gives a state to a value of type list"),
        (b"]Nb.", None),
        (b"R.", "pops from an empty stack"),
        (b"\x86.", "pops from an empty stack"),
        (b"h\x05.", "recalls object 5, which it did not remember"),
        (
            b"g99999999999999999999999\n.",
            "the place '99999999999999999999999' in its memo, which pickle never writes so",
        ),
        (b"q\x00.", "looks at an empty stack"),
        (b"}(Nu.", "has a key without a value"),
        (b"N(NNu.", "sets items of a value of type NoneType"),
        (b"NNa.", "appends to a value of type NoneType"),
        (b"\x80\x06.", "is of protocol 6; 5 is the latest"),
        (b"\xff.", "has the byte 0xff in place of an opcode"),
        (b"\x82\x01.", "copyreg extension code"),
        (b"\x97.", "a buffer from outside the file"),
        (b"\x8b" + struct.pack("<i", 2**31 - 1) + b"\1.", "an integer of 2,147,483,647 bytes"),
        (b"\x8b" + struct.pack("<i", -1) + b"\1.", "an integer of -1 bytes"),
        (b"\x8d" + struct.pack("<Q", 2**63) + b"a.", "a string of 9,223,372,036,854,775,808 bytes"),
        (b"\x8e" + struct.pack("<Q", 2**64 - 1) + b"a.", "a string of 18,446,744,073,709,551,615"),
        (b"\x96" + struct.pack("<Q", 2**40) + b"a.", "a string of 1,099,511,627,776 bytes"),
        (b"I" + b"9" * 5000 + b"\n.", "which pickle never writes so"),
        (b"I0x1f\n.", "has the integer '0x1f', which pickle never writes so"),
        (b"I010\n.", "has the integer '010'"),
        (b"I1_0\n.", "has the integer '1_0'"),
        (b"I 1\n.", "has the integer ' 1'"),
        (b"L01L\n.", "has the integer '01'"),
        (b"I-0\n.", "has the integer '-0'"),
        (b"Np0x1\n.", "the place '0x1' in its memo"),
        (b"Nr\xff\xff\xff\x7f.", "an object at place 2,147,483,647"),
        (b"Fone\n.", "has the number 'one', which pickle never writes so"),
        (b"F1_0\n.", "has the number '1_0'"),
        (b"F1e999\n.", "has the number '1e999'"),
        (b"Sid\n.", "a string without its quotes"),
        (b"S'id' \n.", "a string without its quotes"),
        (b"S'\\157s'\n.", "an escape that pickle never writes"),
        (b"S'\\q'\n.", "an escape that pickle never writes"),
        (b"S'\\xff'\n.", "a string of Python 2 that is not UTF-8"),
        (b"U\1\xff.", "a string of Python 2 that is not UTF-8"),
        (b"\x8c\1\xff.", "a string that is not UTF-8"),
        (b"P\xff\n.", "by what is not ASCII"),
        (b"c\nsystem\n.", "imports a name without letters"),
        (b"cos\n\xff\n.", "which is not text"),
        (b"(ios\n\xc3\xa9\n.", "which is not text"),
        (b"}(]Nu.", "has a value of type list for a key"),
        (b"\x8f(}\x90.", "has a dict for a key, or in a set"),
        (b"}(]\x85Nu.", "has a value of type tuple for a key"),
        (b"](K\1\x90.", "adds to a value of type list"),
        (b"\x8f(K\1e.", "appends to a set"),
        (b"\x98.", "a buffer from outside the file"),
        (b"\x95" + struct.pack("<Q", 2) + b"NX\0\0\0\0.", "a frame that ends inside an opcode"),
        (b"\x95" + struct.pack("<Q", 3) + b"N.N", "ends before its frame does"),
        (b"\x95" + struct.pack("<Q", 20) + b"\x95" + bytes(40), "a frame inside a frame"),
        (b"\x95" + struct.pack("<Q", 2**62) + b".", "has a frame of 4,611,686,018,427,387,904"),
        (b"(" * 10_001, "sets more than 10,000 marks"),
        (b"V\\u12\n.", "a broken escape"),
        (b"\x8c\x01aN\x93.", "imports a value of type NoneType from a value of type str"),
        (b"c" + b"a" * 70_000 + b"\n.", "has a line of more than 65,536 bytes"),
        (b"N0" * 500_001, "has more than 1,000,000 opcodes"),
        (b"]" * 200_001, "makes more than 200,000 objects"),
    ],
)
def test_what_no_unpickler_could_do_is_a_fault(content, fault):
    observed = follow_pickle(content).fault
    assert (observed is None) if fault is None else (fault in observed)


def test_what_is_remembered_is_bounded():
    places = b"".join(b"r" + struct.pack("<I", place) for place in range(200_001))
    assert "remembers more" in follow_pickle(b"N" + places).fault


def test_a_list_may_hold_itself():
    ran = follow_pickle(pickle.dumps((held := [], held.append(held))[0]))
    assert ran.value[0] is ran.value


def test_a_subclass_of_a_dict_keeps_its_items():
    ran = follow_pickle(pickle.dumps(collections.OrderedDict(a=1, b=[2]), protocol=2))
    assert (ran.value.pairs, ran.fault) == ([("a", 1), ("b", [2])], None)


@pytest.mark.oracle
def test_what_torch_itself_lets_pass_is_known():
    from torch._weights_only_unpickler import _get_allowed_globals  # noqa: PLC0415 - the oracle's

    allowed = (name.rpartition(".") for name in _get_allowed_globals())
    assert {Global(module, name) for module, _, name in allowed} <= KNOWN


@pytest.mark.oracle
def test_there_is_room_for_sixteen_thousand_tensors_in_one_file():
    import torch  # noqa: PLC0415 - the oracle's

    one, out = torch.ones(1), io.BytesIO()
    names = (f"model.layers.{n}.mlp.experts.{n}.down_proj.weight" for n in range(16_000))
    torch.save({name: one.clone() for name in names}, out)
    ran = follow_pickle(zipfile.ZipFile(out).read("archive/data.pkl"))
    assert (ran.fault, len(ran.value.pairs)) == (None, 16_000)
    assert len(parsed(out.getvalue()).tensors) == 16_000
