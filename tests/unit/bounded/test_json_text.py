"""Bounded JSON: what json.loads and transformers take is taken, everything else says where."""

import json
import subprocess
import sys
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from auditor.bounded.json_text import (
    bounds_fault,
    converted,
    decoded,
    lfs_pointer_size,
    load_object,
    parse_object,
    usable_fields,
)
from auditor.errors import CheckpointError

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 35838\n" % (b"9" * 64)


@given(
    st.dictionaries(st.text(max_size=8), values, max_size=4),
    st.booleans(),
    st.sampled_from([None, 2]),
)
def test_an_object_is_read_as_json_reads_it(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert json.dumps(parse_object(text.encode(), "config.json")) == json.dumps(value)


@given(st.binary(max_size=60) | st.text('{}[]":,\\u0dn1.e- \n', max_size=60).map(str.encode))
def test_any_bytes_give_an_object_or_one_line(content):
    try:
        assert isinstance(parse_object(content, "config.json"), dict)
    except CheckpointError as error:
        assert str(error).startswith("config.json ")  # noqa: PT017 - both outcomes are right
        assert str(error).isprintable()  # noqa: PT017


def nesting(value) -> int:
    match value:
        case dict():
            return 1 + max(map(nesting, value.values()), default=0)
        case list():
            return 1 + max(map(nesting, value), default=0)
        case _:
            return 0


@given(values, st.booleans())
def test_the_depth_is_that_of_the_values(value, ascii_only):
    depth = nesting(value)
    content = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert bounds_fault(content, depth) is None
    if depth:
        assert f"is nested {depth} levels deep" in str(bounds_fault(content, depth - 1))


def test_brackets_in_strings_nest_nothing(subtests):
    for text in ['"[[["', '"\\"[[["', '"\\\\\\"["']:
        with subtests.test(text=text):
            assert parse_object(f'{{"a":[{text}]}}'.encode(), "x") == {"a": json.loads(f"[{text}]")}
            assert bounds_fault(f'{{"a":[{text}]}}'.encode(), 2) is None


def test_a_text_too_deep_is_refused_before_it_is_parsed(subtests):
    for text in ["[" * 128, '{"a":' * 128, '"]]]",' + "[" * 128, '"\\"]]]",' + "[" * 128]:
        with subtests.test(text=text):
            deep = '{"a":[' + text
            with pytest.raises(
                CheckpointError,
                match=r"^config.json is nested 130 levels deep, expected at most 128",
            ):
                parse_object(deep.encode(), "config.json")
            assert parse_object(b'{"a":' + b"[" * 127 + b"]" * 127 + b"}", "config.json")


def test_no_depth_ends_in_a_recursion_error(subtests):
    for opener in ['[{"a":']:
        with subtests.test(opener=opener):
            text = '{"a":' + opener * (sys.getrecursionlimit() * 100)
            with pytest.raises(CheckpointError, match=r"is nested [\d,]+ levels deep"):
                parse_object(text.encode(), "config.json")


PASSES = {
    '{"a": 1}': {"a": 1},
    '\r\n\t {"a": 1}\n\n': {"a": 1},
    '{"a": 1, "a": 2}': {"a": 2},
    '{"time_step_limit": [0.0, Infinity]}': {"time_step_limit": [0.0, float("inf")]},
    '{"a": 1e999}': {"a": float("inf")},
    '{"\\ud83d\\ude00": "\\u0000"}': {"\U0001f600": "\0"},
    '{"a": %s}' % ("9" * 640): {"a": int("9" * 640)},
}


def test_what_transformers_would_take_passes(subtests):
    for text, value in PASSES.items():
        with subtests.test(text=text):
            assert parse_object(text.encode(), "config.json") == value


def test_keys_that_are_written_twice_are_named():
    loaded = load_object(b'{"b": {"x": 1, "x": 2}, "a": 1, "a": 2, "c": {"a": 1}}', "index.json")
    assert loaded.value == {"b": {"x": 2}, "a": 2, "c": {"a": 1}}
    assert loaded.repeated == ("a", "x")


FAILS = {
    r"is a Git LFS pointer to a file of 35,838 bytes, not the file: .* `git lfs pull`": POINTER,
    r"begins with a byte order mark \(EF BB BF\), which transformers refuses": b"\xef\xbb\xbf{}",
    r"is not UTF-8 \(it looks like UTF-16\): byte 0xff at line 1 column 1": "{}".encode("utf-16"),
    r"continues after the end of its JSON: '\[http\]\\n\\tpost.*' at line 4 column 1": (
        b'{\n "vocab_size": 32004\n}\n[http]\n\tpostBuffer = 524288000\n'
    ),
    r"has an unresolved git merge conflict: line 2 is '<<<<<<< HEAD'": (
        b'{\n<<<<<<< HEAD\n "a": 1\n=======\n "a": 2\n>>>>>>> main\n}'
    ),
    r"is not JSON: Expecting property name .* at line 3 column 1, before '}'": b'{\n "a": 1,\n}',
    r"is cut off: its JSON does not end before line 2 column 6": b'{\n "a":',
    r"has an integer of 641 digits at line 2 column 6, expected at most 640": b'{\n "a":'
    + b"7" * 641
    + b"}",
    r"has 33,554,433 bytes, expected at most 33,554,432": b"{}" + b" " * (32 * 1024 * 1024 - 1),
    r"has some 150,00\d JSON values, expected at most 150,000": b'{"a":['
    + b"1," * 150_000
    + b"1]}",
}


def test_a_value_that_is_not_an_object_is_reported_with_its_place(subtests):
    for message, value in FAILS.items():
        with (
            subtests.test(message=message),
            pytest.raises(CheckpointError, match=f"^config.json {message}"),
        ):
            parse_object(value, "config.json")


def test_a_git_lfs_pointer_is_known_by_its_version_and_its_size(subtests):
    for head, size in [
        (POINTER, 35838),
        (POINTER.replace(b"\n", b"\r\n"), 35838),
        (POINTER.replace(b"oid", b"ext-0-x sha256:1\noid"), 35838),
        (POINTER + b"junk", 35838),
        (b"", None),
        (b"version 1", None),
        (b"{}", None),
        (POINTER[:60], None),
        (POINTER.replace(b"35838", b"many"), None),
        (POINTER.replace(b"35838", b"-1"), None),
        (POINTER.replace(b"oid", b"x" * 1024), None),
        (b" " + POINTER, None),
    ]:
        with subtests.test(head=head, size=size):
            assert lfs_pointer_size(head) == size


def test_escapes_without_number_take_no_memory_of_their_own():
    content = b'{"a":"' + b'\\"' * 1_000_000 + b'[["}'
    tracemalloc.start()
    assert bounds_fault(content, depth=1) is None  # the brackets are text
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * len(content)


class Entry(Struct, forbid_unknown_fields=True):
    name: str
    size: int | None = None
    inner: list["Entry"] = []


def test_a_value_of_another_type_is_named_with_its_place(subtests):
    for value, message in [
        ({"name": 5}, "name is 5, expected a string"),
        ({"name": "a", "size": 1.5}, "size is 1.5, expected a whole number or null"),
        ({"name": "a", "inner": {}}, "inner is an object, expected a list"),
        (
            {"name": "a", "inner": [{"name": "b"}, {"name": None}]},
            "inner[1].name is null, expected a string",
        ),
        ({"name": "a", "inner": [{}]}, "inner[0] has no key 'name'"),
        ({"name": "a", "a\x1bb": 1}, "it has the unknown key 'a\\x1bb'"),
        ([], "it is a list, expected an object"),
    ]:
        with subtests.test(value=value, message=message):
            with pytest.raises(CheckpointError) as raised:
                converted(value, Entry)
            assert str(raised.value) == message


class Fields(Struct):
    number: int = 7
    text: str | None = None


JSON_VALUES = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.integers())


@given(JSON_VALUES, JSON_VALUES)
def test_a_field_of_another_type_has_its_default(number, text):
    fields = usable_fields({"number": number, "text": text, "more": 1}, Fields)
    assert fields.number == (number if type(number) is int else 7)
    assert fields.text == (text if isinstance(text, str) else None)
    assert usable_fields(number, Fields) == Fields()


def test_text_that_is_not_of_the_type_is_refused_in_one_line(subtests):
    for content, fault in [
        (b'{"number": "x"}', "x.json: number is a string, expected a whole number"),
        (b"[]", "x.json is a list, expected an object"),
        (b'{"number": 1', "x.json is not JSON: Input data was truncated"),
        (b'{"text": "\xff"}', "x.json is not JSON: "),
        (b'{"a": ' + b"[" * 100_000, "x.json is not JSON: "),
    ]:
        with subtests.test(content=content, fault=fault):
            with pytest.raises(CheckpointError, match=f"^{fault}") as raised:
                decoded(content, Fields, "x.json")
            assert str(raised.value).isprintable()


def test_threads_may_be_the_first_to_decode_into_a_type_at_once():
    """Without `examined` the process ends with a segmentation fault within 1,000 types."""
    done = subprocess.run(  # noqa: S603 - a script of this file
        [sys.executable, "-c", FIRST_DECODERS], capture_output=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"done\n"), done.stderr


FIRST_DECODERS = """
import sys
from threading import Barrier, Thread
from msgspec import defstruct
from auditor.bounded.json_text import converted

sys.setswitchinterval(1e-6)
start = Barrier(4)

def convert(type_):
    start.wait()
    converted({"one": {"number": 3}, "many": [{"number": 4}]}, type_)

for _ in range(1000):
    inner = defstruct("Inner", [("number", int, 0), ("text", str | None, None)])
    outer = defstruct("Outer", [("one", inner | None, None), ("many", list[inner], [])])
    threads = [Thread(target=convert, args=(outer,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print("done")
"""
