"""Law 7: a file is accepted if and only if the safetensors library accepts it."""

import re
from math import prod

import pytest
from fuzz.safetensors_law import expected, observed
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors import SafetensorError, deserialize, safe_open
from support.builders import framed, safetensors_bytes
from support.examples import examples

from auditor.containers.safetensors import parse_header
from auditor.errors import CheckpointError
from auditor.tensors import DTYPE_BITS

law = examples(300)
NAMES = st.text(st.characters(codec="utf-8"), max_size=12)
U8 = '"dtype":"U8","shape":[2],"data_offsets":[0,2]'


@st.composite
def shapes(draw, dtype: str):
    shape = draw(st.lists(st.integers(0, 3), max_size=4))
    whole = {4: 2, 6: 4}.get(DTYPE_BITS[dtype])  # this many elements fill whole bytes
    return (*shape, whole) if whole else tuple(shape)


@st.composite
def described(draw):
    names = draw(st.lists(NAMES.filter(lambda name: name != "__metadata__"), unique=True))
    dtypes = {name: draw(st.sampled_from(sorted(DTYPE_BITS))) for name in names}
    return {name: (dtype, draw(shapes(dtype))) for name, dtype in dtypes.items()}


valid = st.builds(
    safetensors_bytes,
    described(),
    metadata=st.none() | st.dictionaries(NAMES, NAMES, max_size=3),
    align=st.sampled_from([1, 8, 64]),
)


@law
@given(valid)
def test_every_valid_file_is_read_as_the_library_reads_it(content):
    assert expected(content) is not None
    assert observed(content) == expected(content)


@pytest.mark.slow
@law
@given(st.data(), described(), st.dictionaries(NAMES, NAMES, max_size=2))
def test_the_order_of_tensors_in_header_and_data_is_free(data, tensors, metadata):
    end, entries = 0, []
    for name in data.draw(st.permutations(list(tensors))):
        dtype, shape = tensors[name]
        start, end = end, end + prod(shape) * DTYPE_BITS[dtype] // 8
        entries.append((name, dtype, list(shape), [start, end]))
    parts = [
        f'{_text(name)}:{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'
        for name, dtype, shape, offsets in data.draw(st.permutations(entries))
    ]
    strings = ",".join(f"{_text(key)}:{_text(value)}" for key, value in metadata.items())
    parts.insert(data.draw(st.integers(0, len(parts))), f'"__metadata__":{{{strings}}}')
    content = framed(f"{{{','.join(parts)}}}", bytes(end))
    assert expected(content) is not None
    assert observed(content) == expected(content)


def _text(text: str) -> str:
    """JSON, with \\u escapes, some of them where none is needed."""
    return '"' + "".join(_escape(c) if c in 'dam"\\' or c < " " else c for c in text) + '"'


def _escape(character: str) -> str:
    return f"\\u{ord(character):04x}"


@pytest.mark.slow
@law
@given(st.data(), valid)
def test_a_file_with_a_few_bytes_changed_is_judged_as_the_library_judges_it(data, content):
    changed = bytearray(content)
    reach = 8 + int.from_bytes(content[:8], "little")
    for _ in range(data.draw(st.integers(1, 3))):
        spot = data.draw(st.integers(0, min(reach, len(changed))))
        byte = data.draw(st.integers(0, 255) | st.sampled_from(list(b'0129-.eE"\\:,{}[]untf \n')))
        match data.draw(st.sampled_from(["flip", "insert", "delete", "truncate", "append"])):
            case "flip":
                changed[spot : spot + 1] = [byte]
            case "insert":
                changed[spot:spot] = [byte]
            case "delete":
                del changed[spot : spot + 1]
            case "truncate":
                del changed[spot:]
            case "append":
                changed.append(byte)
        if data.draw(st.booleans()):  # keep the length true, so that the JSON is what is judged
            changed[:8] = max(0, reach - 8 + len(changed) - len(content)).to_bytes(8, "little")
    assert observed(bytes(changed)) == expected(bytes(changed))


ODD = [
    *("-0", "0", "2", "0.0", "2.0", "1e0", "-1", "true", "null", '"2"', '"U8"', '"I8"', "01"),
    *("1.", "NaN", "-Infinity", "[]", "[0]", "[0,2]", "[2]", "{}", "-", "+1", "1_0", "0x2"),
    *("18446744073709551615", "18446744073709551616", "9" * 25, "1e400", "1e-400", "9" * 320),
    *('"\\ud800"', '"\\ud83d\\ude00"', '"\\udc00"', '"\\u00558"', '"\\x"', '"\t"', '"\x7f"'),
    *('{"U8":null}', '{"U8":{}}', '{"U8":null,"U8":null}', '["U8",[2],[0,2]]', '["U8",[2]]'),
    *("[" * 125 + "]" * 125, "[" * 126 + "]" * 126, '{"x":' * 125 + "1" + "}" * 125, '"]]]["'),
    *(f"{{{U8}}}", f"{{{U8},{U8}}}", "[2,18446744073709551615,0]", "[0,18446744073709551615,2]"),
]
KEYS = [
    *("dtype", "shape", "data_offsets", "__metadata__", "a", "b", "", "\\u0064type", ":", "x:y"),
    *("\\ud800", "\\u0000", "__metadat\\u0061__", "\\/", '\\"', "[", "}", "é"),
]
space = st.sampled_from(["", "", "", " ", "\n", "\t\r", "\x0c", "\ufeff"])


@st.composite
def odd_headers(draw):
    """A header with up to three of its pieces replaced, repeated, added or left out."""
    top = [("a", _fields(0, 2)), ("b", _fields(2, 4))]
    for _ in range(draw(st.integers(0, 3))):
        target = draw(
            st.sampled_from([top, *(fields for _, fields in top if type(fields) is list)])
        )
        spot = draw(st.integers(0, len(target)))
        kept = target[spot][0] if spot < len(target) else "c"
        key = draw(st.sampled_from([*KEYS, kept, kept, kept]))
        piece = (key, draw(st.sampled_from(ODD)))
        target[spot : spot + draw(st.sampled_from([0, 1, 1]))] = draw(
            st.sampled_from([[piece], [piece], [], [piece, piece]])
        )
    return draw(space) + _rendered(top, draw) + draw(space)


def _fields(start: int, stop: int) -> list[tuple[str, str]]:
    return [("dtype", '"U8"'), ("shape", "[2]"), ("data_offsets", f"[{start},{stop}]")]


def _rendered(pairs, draw) -> str:
    gap = draw(space) if draw(st.booleans()) else ""
    parts = (
        f'"{key}"{gap}:{value if isinstance(value, str) else _rendered(value, draw)}'
        for key, value in pairs
    )
    return f"{{{','.join(parts)}}}"


@pytest.mark.slow
@examples(800)
@given(odd_headers(), st.sampled_from([4, 2, 0]))
@example('{"a":5,"a":{' + U8 + "}}", 2)
@example('{"__metadata__":{"k":1,"k":"v"},"a":{' + U8 + "}}", 2)
@example('{"__metadata__":{"k":1,"k":"v:"},"a":{' + U8 + "}}", 2)
@example('{"__metadata__":[],"a":{' + U8 + "}}", 2)
@example('{"__metadata__":{}', 0)
@example('{"__metadata__":{"k":"v"}', 0)
@example('{"a:":{' + U8 + '},"a:":{' + U8 + "}}", 2)
def test_odd_json_is_judged_as_the_library_judges_it(header, data):
    content = framed(header, bytes(data))
    assert observed(content) == expected(content)


def refusal(file: str, content: bytes) -> str:
    try:
        parse_header(file, content)
    except CheckpointError as error:
        return str(error)
    return ""


@law
@given(odd_headers(), st.sampled_from(["model.safetensors", "a\nb\u202e", "x" * 5000]))
def test_a_refusal_is_one_short_line_that_a_terminal_can_show(header, file):
    message = refusal(file, framed(header))
    assert message.isprintable()
    assert len(message) < 600


numbers = st.from_regex(
    re.compile(r"-?(0|[1-9][0-9]{0,330})(\.[0-9]{1,40})?([eE][-+]?[0-9]{1,11})?", re.ASCII),
    fullmatch=True,
)
near_the_largest = st.builds(
    "{}{}.{}e{}".format,
    st.sampled_from(["1797693134862315", "1", "18446744073709551615", "184467440737095516150"]),
    st.integers(0, 10**9),
    st.integers(0, 10**21),
    st.integers(260, 310),
)


@pytest.mark.slow
@examples(500)
@given(numbers | near_the_largest)
@example("1.7976931348623157e308")
@example("1.7976931348623159e308")
@example("17976931348623158" + "0" * 292)
@example("0" + "." + "0" * 400 + "1e700")
@example("1e" + "0" * 20 + "5")
@example("0e99999999999")
@example("1e-99999999999")
def test_a_number_that_is_not_used_is_in_range_or_not_as_in_serde(number):
    content = framed(f'{{"a":{{{U8},"x":{number}}}}}', bytes(2))
    assert observed(content) == expected(content)


def test_the_table_of_dtypes_is_the_librarys():
    with pytest.raises(SafetensorError) as refused:
        deserialize(framed('{"a":{"dtype":"?","shape":[],"data_offsets":[0,0]}}'))
    known = re.findall("`([A-Z0-9_]+)`", str(refused.value).split("expected one of", 1)[1])
    assert sorted(known) == sorted(DTYPE_BITS)


@pytest.mark.parametrize("dtype", sorted(DTYPE_BITS))
def test_a_dtype_has_the_librarys_width(dtype):
    for width in range(1, 129):  # eight elements take as many bytes as one takes bits
        header = f'{{"a":{{"dtype":"{dtype}","shape":[8],"data_offsets":[0,{width}]}}}}'
        accepted = expected(framed(header, bytes(width))) is not None
        assert accepted == (width == DTYPE_BITS[dtype])


WHOLE = safetensors_bytes({"a": ("F32", (2, 3))}, metadata={"format": "pt"})
FILES = {
    "whole": WHOLE,
    "no tensor at all": framed("{}"),
    "white space first": framed(" {}"),
    "one byte short": WHOLE[:-1],
    "one byte long": WHOLE + b"\0",
    "no byte": b"",
    "seven bytes": WHOLE[:7],
    "eight bytes": WHOLE[:8],
    "length zero": bytes(8),
    "length past the end": framed("{}", length=3),
    "length past the limit": framed("{}", length=100_000_001),
    "length of all ones": framed("{}", length=2**64 - 1),
    "not UTF-8": framed(b'{"\xff":1}'),
    "a surrogate in UTF-8": framed(b'{"\xed\xa0\x80":1}'),
}


@pytest.mark.parametrize("name", FILES)
def test_opening_a_file_and_reading_its_bytes_give_the_same_result(name, tmp_path):
    content = FILES[name]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    try:
        with safe_open(path, "np") as opened:
            names = set(opened.keys())
    except (SafetensorError, OSError, ValueError):
        names = None
    ours = observed(content)
    assert (None if ours is None else set(ours)) == names
    assert ours == expected(content)


@pytest.mark.parametrize(
    "written",
    [
        *("null", "{}", '{"format":"pt"}', '{"a":"1","a":"2"}', '{"url":"http://a:b"}'),
        *('{"a":"{\\"b\\": 1}"}', '{"\\u0061":"\\ud83d\\ude00"}', '{"":""}', '{"b":"","a":""}'),
    ],
)
def test_metadata_is_what_the_library_hands_out(written, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(framed(f'{{"__metadata__":{written},"a":{{{U8}}}}}', bytes(2)))
    with safe_open(path, "np") as opened:
        metadata = opened.metadata() or {}
    header = parse_header("model.safetensors", path.read_bytes())
    assert dict(header.metadata) == metadata
    assert list(header.metadata) == sorted(metadata.items())


@pytest.mark.slow
def test_a_header_at_the_librarys_limit_is_read_and_one_byte_more_is_not():
    limit = 100_000_000
    at = framed(b"{}" + b" " * (limit - 2))
    assert expected(at) == observed(at) == {}
    past = framed(b"{}" + b" " * (limit - 1))
    assert expected(past) is observed(past) is None
