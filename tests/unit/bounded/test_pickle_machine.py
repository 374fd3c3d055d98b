"""Pickles are followed by an allow-list: a plain value, names that are not known, or a fault."""

import argparse
import collections
import io
import json
import os
import pathlib
import pickle
import random
import struct
import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.torch_files import parsed

from auditor.bounded.pickle_machine import MAX_STEPS, follow_pickle
from auditor.bounded.pickle_names import (
    WEIGHTS_ONLY,
    Global,
    PickledDict,
    PickledSet,
    is_known,
)

PROTOCOLS = (2, 3, 4, 5)
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
    """The value that the records stand for."""
    match value:
        case PickledDict(pairs=pairs):
            return {key: plain(item) for key, item in pairs}
        case PickledSet(items=items):
            return set(items)
        case list() | tuple():
            return type(value)(map(plain, value))
        case _:
            return value


def is_unsafe(content: bytes) -> bool:
    followed = follow_pickle(content)
    return bool(followed.outside) or bool(followed.fault and followed.fault.may_go_on)


# Plain values


@given(VALUES, st.sampled_from(PROTOCOLS))
def test_a_plain_value_is_followed_to_the_end_of_its_pickle(value, protocol):
    content = pickle.dumps(value, protocol=protocol)
    followed = follow_pickle(content)
    assert followed.fault is None
    assert plain(followed.value) == value
    assert followed.stop == len(content)
    assert followed.outside == ()


@given(VALUES, st.sampled_from(PROTOCOLS), st.data())
def test_a_pickle_that_is_cut_off_is_truncated_and_not_unsafe(value, protocol, data):
    content = pickle.dumps(value, protocol=protocol)
    fault = follow_pickle(content[: data.draw(st.integers(0, len(content) - 1))]).fault
    assert (fault.truncated, fault.may_go_on) == (True, False)
    assert "cut off" in fault.reason


def test_an_opcode_on_any_value_raises_nothing():
    for target in (b"]", b"}", b")", b"N", b"\x8f", b"(]t", b"cos\na\n"):
        for opcodes in (b"}b", b"Nb", b")R", b"(tb", b")\x81", b")}\x92", b"]a", b"]\x90", b"(NNu"):
            follow_pickle(target + opcodes + b".")
            follow_pickle(b"(" + target + opcodes + b"N}b.")


# Names that are not known


def test_an_unknown_import_is_followed_as_a_key():
    followed = follow_pickle(b"}(clightning\nCheckpoint\nNu.")
    assert followed.fault is None
    assert "lightning.Checkpoint" in followed.outside[0]


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


def test_a_pickle_that_calls_is_unsafe_and_runs_nothing(subtests, tmp_path):
    for protocol in range(6):
        with subtests.test(protocol=protocol):
            place = Path(tempfile.mkdtemp(dir=tmp_path))
            proof = place / "run"
            content = pickle.dumps({"a": Called(f"touch {proof}")}, protocol=protocol)
            assert is_unsafe(content)
            if protocol >= 2:
                [line] = follow_pickle(content).outside
                assert line.startswith(f"{SYSTEM}('touch {proof}') at byte ")
            assert not proof.exists()


def test_an_object_of_an_unknown_class_is_unsafe(subtests):
    for protocol in range(6):
        with subtests.test(protocol=protocol):
            assert is_unsafe(pickle.dumps([New(), New()], protocol=protocol))


def test_a_name_that_is_not_known_is_listed_with_its_offset(subtests):
    for content, line in [
        (b"\x80\x02cos\nsystem\nX\2\0\0\0id\x85R.", "os.system('id') at byte 2"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x02id\x85R.", "os.system('id') at byte 14"),
        (b"cbuiltins\neval\n(X\3\0\0\x001+1tR.", "builtins.eval('1+1') at byte 0"),
        (b"cos\nsystem\n.", "os.system, imported and not called, at byte 0"),
        (b"c\x1b[2J\n\x07\n(tR.", "'\\x1b[2J.\\x07'() at byte 0"),
        (
            b"ccollections\nOrderedDict.fromkeys\n)R.",
            "collections.OrderedDict.fromkeys() at byte 0",
        ),
        (b"ctorch\nserialization.os.system\n.", "torch.serialization.os.system, imported"),
        (b"cos\nsystem\n(X\2\0\0\0idtRa.", "os.system('id') at byte 0"),  # before a fault
    ]:
        with subtests.test(content=content, line=line):
            [observed] = follow_pickle(content).outside
            assert observed.startswith(line)


def test_names_beyond_a_bound_are_counted():
    content = b"".join(b"ca\nb%d\n" % number for number in range(60))
    *_, last = follow_pickle(content + b".").outside
    assert last == "10 more names"


# What is not followed


def forged_dtype(args: bytes = b"X\2\0\0\0f4\x89\x88", state: bytes = b"") -> bytes:
    """numpy.dtype('f4', False, True) and its state; both may be others."""
    order = b"X\1\0\0\0<"
    return (
        b"cnumpy\ndtype\n("
        + args
        + b"tR("
        + (state or b"K\3" + order + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0")
        + b"tb"
    )


def scalar(dtype: bytes, content: bytes = b"C\4abcd") -> bytes:
    return b"cnumpy.core.multiarray\nscalar\n" + dtype + content + b"\x86R."


NOT_FOLLOWED = [
    (b"(X\2\0\0\0idios\nsystem\n.", "uses the opcode INST"),
    (b"Nq\x000.", "uses the opcode POP"),
    (b"Pabc\n.", "uses the opcode PERSID"),
    (b"\x95" + struct.pack("<Q", 2) + b"NX\0\0\0\0.", "a frame that ends inside an opcode"),
    (b"\x95" + struct.pack("<Q", 3) + b"X\x99\x99\0\0cos\nsystem\n.", "a frame that ends inside"),
    (b"\x95" + struct.pack("<Q", 20) + b"\x95" + bytes(40), "a frame inside a frame"),
    (b"\x8c\x01aN\x93.", "imports a value of type NoneType from a value of type str"),
    (b"NN\x85R.", "calls a value of type NoneType"),
    (b"ccollections\nOrderedDict\n)R)R.", "calls the result of a call"),
    (b"ctorch\nSize\n}b.", "gives a state to torch.Size"),
    (b"ccollections\nOrderedDict\n)R}X\4\0\0\0keysNsb.", "a state to an object of collections"),
    (b"]q\0h\0a.", "fills a value of type list that was used before"),
    (b"}(]Nu.", "has a value of type list for a key"),
    (b"](K\1\x90.", "adds to a value of type list"),
    (b"N(K\1Nu.", "sets items of a value of type NoneType"),
    (b"Nr\xff\xff\xff\x7f.", "fills place 2,147,483,647 of its memo"),
    (b"(X\6\0\0\0moduleccollections\nOrderedDict\ntQ.", "an object that is not a storage"),
    # Known names, in forms that no library writes
    (b"cbuiltins\nbytearray\nJ\0\x28\x6b\xee\x85R.", "calls builtins.bytearray in a form"),
    (b"ccollections\nOrderedDict\n)\x81.", "calls collections.OrderedDict in a form"),
    (
        b"ctorch._tensor\n_rebuild_from_type_v2\n(cbuiltins\nset\nctorch\nTensor\nN\x85NtR.",
        "calls torch._tensor._rebuild_from_type_v2 in a form",
    ),
    (b"ctransformers.training_args\nTrainingArguments\nN\x85\x81.", "TrainingArguments in a form"),
    # numpy, forged
    (scalar(forged_dtype(), b"C\5abcde"), "calls numpy.core.multiarray.scalar in a form"),
    (scalar(forged_dtype(b"X\1\0\0\0O\x89\x88")), "calls numpy.dtype in a form"),
    (scalar(forged_dtype(b"X\x08\0\0\0f4000000\x89\x88")), "calls numpy.dtype in a form"),
    (
        scalar(forged_dtype(state=b"K\3X\1\0\0\0<NNNJ\0\0\0\x7fJ\xff\xff\xff\xffK\0")),
        "gives a state to an object of numpy.dtype",
    ),
    (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nJ\0\0\0\x7f\x85C\1b\x87R.",
        "calls numpy.core.multiarray._reconstruct in a form",
    ),
    (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85C\1b\x87R(K\1K\2\x85"
        + forged_dtype()
        + b"\x89C\4abcdtb.",
        "gives a state to an object of numpy.core.multiarray._reconstruct",
    ),
]


def test_what_no_library_writes_is_not_followed_and_so_unsafe(subtests):
    for content, reason in NOT_FOLLOWED:
        with subtests.test(content=content, reason=reason):
            fault = follow_pickle(content).fault
            assert fault.may_go_on
            assert reason in fault.reason


def test_the_forged_pickles_differ_from_true_ones_in_what_is_forged():
    followed = follow_pickle(scalar(forged_dtype()))
    assert (followed.fault, followed.outside) == (None, ())


def test_what_no_unpickler_could_do_is_a_fault_and_not_unsafe(subtests):
    for content, reason in [
        (b"t.", "at byte 0"),
        (b"\x82\x01.", "uses the opcode EXT1 with nothing to take at byte 0"),
        (b"\x97.", "uses the opcode NEXT_BUFFER with nothing to take at byte 0"),
        (b"I\xff\n.", "uses the opcode INT with bytes that are not text at byte 0"),
        (b"c\xff\na\n.", "imports a name that is not text at byte 0"),
        (b"}(Nu.", "a key without a value at byte 3"),
        (b"N\xff.", "has the byte 0xff in place of an opcode at byte 1"),
    ]:
        with subtests.test(content=content, reason=reason):
            with pytest.raises((pickle.UnpicklingError, ValueError, IndexError)):
                pickle.loads(content)  # noqa: S301 - the oracle, on bytes that import nothing
            fault = follow_pickle(content).fault
            assert not fault.may_go_on
            assert reason in fault.reason


def test_a_pickle_of_too_many_steps_is_not_followed(subtests):
    for opcodes in [b"N", b"]", b"}"]:
        with subtests.test(opcodes=opcodes):
            content = b"(" + opcodes * (MAX_STEPS // len(opcodes) + 1) + b"."
            fault = follow_pickle(content).fault
            assert fault.may_go_on
            assert f"takes more than {MAX_STEPS:,} steps" in fault.reason


# Harmless values that weights_only refuses


HARMLESS = [
    slice(1, 2),
    frozenset((1, "a")),
    range(3),
    collections.defaultdict(list, a=[1]),
    argparse.Namespace(lr=0.1),
    pathlib.PurePosixPath("a/b") if os.name == "nt" else pathlib.PosixPath("a/b"),
]


def test_a_harmless_object_is_followed_and_named_as_refused(subtests):
    for value in HARMLESS:
        for protocol in [2, 5]:
            with subtests.test(value=value, protocol=protocol):
                followed = follow_pickle(pickle.dumps({"a": value}, protocol=protocol))
                assert (followed.fault, followed.outside) == (None, ())
                assert followed.refused


def test_numpy_is_followed_in_the_form_that_numpy_writes(subtests):
    for protocol in PROTOCOLS:
        with subtests.test(protocol=protocol):
            numpy = pytest.importorskip("numpy", reason="the oracle of these forms")
            kinds = (
                "bool",
                "int8",
                "uint16",
                "int64",
                "float16",
                "float32",
                "float64",
                "complex128",
            )
            values = [numpy.zeros((2, 3), kind) for kind in kinds]
            values += [numpy.ones(1, kind)[0] for kind in kinds]
            values += [numpy.dtype("f4"), numpy.arange(6).reshape(2, 3).T, numpy.zeros((0, 3))]
            values += [random.getstate(), numpy.random.get_state()]
            for value in values:
                followed = follow_pickle(pickle.dumps({"a": value}, protocol=protocol))
                assert (followed.fault, followed.outside) == (None, ()), repr(value)


def test_numpy_of_objects_and_strings_is_followed_to_what_they_are(subtests):
    for protocol in PROTOCOLS:
        with subtests.test(protocol=protocol):
            numpy = pytest.importorskip("numpy", reason="the oracle of these forms")
            objects = numpy.array([None, {}], dtype=object)
            for value in (
                objects,
                numpy.array(["a", "bc"]),
                numpy.array([b"a"]),
                numpy.array([], "O"),
            ):
                followed = follow_pickle(pickle.dumps([value, value.dtype], protocol=protocol))
                assert (followed.fault, followed.outside) == (None, ()), repr(value)
            objects[0] = Called("id")
            [line] = follow_pickle(pickle.dumps(objects, protocol=protocol)).outside
            assert line.startswith(f"{SYSTEM}('id')")


# The lists


@pytest.mark.oracle
def test_the_list_is_that_of_the_installed_torch():
    from torch._weights_only_unpickler import _get_allowed_globals  # noqa: PLC0415 - the oracle's

    assert frozenset(_get_allowed_globals()) == WEIGHTS_ONLY


@pytest.mark.oracle
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_classes_of_training_arguments_are_those_of_the_installed_transformers():
    """The program that wrote the list, run again."""
    import rebuild_pickle_names as rebuild  # noqa: PLC0415 - imports transformers

    lists = json.loads(rebuild.PLACE.read_text())
    assert lists["enums"] == rebuild.enum_names()
    assert lists["plain_objects"] == rebuild.plain_object_names()


WARNED = (
    *("os.system", "posix.system", "nt.system", "subprocess.Popen", "builtins.eval"),
    *("builtins.exec", "builtins.getattr", "builtins.open", "builtins.compile"),
    *("builtins.__import__", "runpy.run_path", "pty.spawn", "shutil.rmtree", "socket.socket"),
    *("webbrowser.open", "importlib.import_module", "operator.attrgetter", "functools.partial"),
    *("torch.load", "torch.hub.load", "torch.jit.load", "torch._utils._import_dotted_name"),
    *("numpy.load", "numpy.f2py.crackfortran.myeval", "types.FunctionType"),
    *("collections.OrderedDict.fromkeys", "copyreg._reconstructor"),
)


def test_no_known_name_is_one_that_scanners_warn_of():
    assert not [name for name in WARNED if is_known(Global(*name.rsplit(".", 1)))]


@pytest.mark.oracle
def test_there_is_room_for_sixteen_thousand_tensors_in_one_file():
    import torch  # noqa: PLC0415 - the oracle's

    one, out = torch.ones(1), io.BytesIO()
    names = (f"model.layers.{n}.mlp.experts.{n}.down_proj.weight" for n in range(16_000))
    torch.save({name: one.clone() for name in names}, out)
    followed = follow_pickle(zipfile.ZipFile(out).read("archive/data.pkl"))
    assert (followed.fault, len(followed.value.pairs)) == (None, 16_000)
    assert len(parsed(out.getvalue()).tensors) == 16_000
