"""Weight files that are none, are cut off, or whose headers lie."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from support.bad_input.making import (
    GOOD_WEIGHTS,
    POINTER,
    TENSORS,
    WEIGHTS,
    Row,
    assert_says,
    cases,
    found,
    whole,
)
from support.bad_input.running import CLEAN, FINDINGS
from support.builders import framed, safetensors_bytes

HEAD = 8 + int.from_bytes(GOOD_WEIGHTS[:8], "little")
DATA = GOOD_WEIGHTS[HEAD:]
HEADER = GOOD_WEIGHTS[8:HEAD]
WORDS = "embeddings.word_embeddings.weight"
POSITIONS = "embeddings.position_embeddings.weight"
TYPES = "embeddings.token_type_embeddings.weight"
DEEP = "[" * 10_000 + "]" * 10_000
NOISE = Random(6).randbytes(5000)  # noqa: S311 - the same noise in every run


def holding(content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / WEIGHTS).write_bytes(content)


def bad(name: str, content: bytes, says: str, kind: str = "bad-header") -> Row:
    return found(name, holding(content), kind, says)


def entry(name: str, says: str, tensor: str = WORDS, **changes: object) -> Row:
    """A header with one tensor changed."""
    header = json.loads(HEADER)
    header[tensor].update(changes)
    return bad(name, framed(json.dumps(header), DATA), says)


def top(name: str, says: str, header: str) -> Row:
    return bad(name, framed(header, DATA), says)


def inserted(text: str) -> str:
    """The good header with something before its first tensor."""
    return "{" + text + "," + HEADER.decode()[1:]


def with_tensors(*names: str) -> bytes:
    return safetensors_bytes({**TENSORS, **dict.fromkeys(names, ("F32", (2, 3)))})


FILES = (
    bad("empty", b"", "^model.safetensors is empty: 0 bytes", "bad-size"),
    bad("2^64 - 1 bytes of header", framed(HEADER, DATA, length=2**64 - 1), "the format allows"),
    bad(
        "a header beyond the end", framed(HEADER, length=99_999_999), "^model.safetensors is trunc"
    ),
    bad("cut off after the header", GOOD_WEIGHTS[:HEAD], "is truncated: its header", "bad-size"),
    bad("a byte too few", GOOD_WEIGHTS[:-1], r"is truncated: its header implies 8 \+", "bad-size"),
    bad("a byte too many", GOOD_WEIGHTS + b"\0", "is too long: its header implies", "bad-size"),
    bad("a Git LFS pointer", POINTER, "is a Git LFS pointer to a file of 411,553,788 bytes"),
    bad("noise", NOISE, "has no safetensors header"),
)
SPELT = (
    top(
        "10,000 levels deep",
        "is nested 10,001 levels deep, expected at most 127",
        inserted(f'"a":{DEEP}'),
    ),
    top("5,000 digits", r"number '9+\.\.\.9+' is out", inserted(f'"a":{{"shape":[{"9" * 5000}]}}')),
)
TRIED = (
    entry("an overlap", "begins at byte 100 .* overlaps", POSITIONS, data_offsets=[100, 196]),
    entry("offsets beyond 2^64", "data_offsets has", data_offsets=[2**64, 2**64 + 176]),
)
HOSTILE = (
    ("an escape sequence", "\x1b[2J\x1b[31mweight\x07"),
    ("markup", "[bold red]weight[/bold red][link=file:///etc/passwd]x[/link]"),
    ("line ends", "weight\r\naudit: all is well\u2028\u0085"),
    ("a formula", "=cmd|' /C calc'!A0"),
    ("a bidi override", "weight\u202e\u2066\ufeff"),
    ("no name", ""),
    ("white space", "  \t "),
    ("10,000 dots", "." * 10_000),
    ("10,000 parts", "a." * 10_000 + "weight"),
    ("10,000 numbers", ".".join(map(str, range(10_000)))),
    ("100 kB", "x" * 100_000),
    ("a path", "../../etc/passwd"),
    ("braces", "{0-999999999999}.{a,b}\\{"),
    ("combining marks", "a" + "\u0301" * 5000),
)


@pytest.mark.parametrize("row", cases((*FILES, *SPELT, *TRIED)))
def test_a_bad_weight_file_ends_with_a_reason(row, audit, tmp_path):
    folder = whole(tmp_path / "input")
    row.spoil(folder)
    assert_says(audit(str(folder), "--format", "json"), row)


@pytest.mark.parametrize("name", [pytest.param(name, id=case) for case, name in HOSTILE])
def test_a_hostile_name_is_a_name_like_any_other(name, audit, tmp_path):
    folder = whole(tmp_path / "input")
    holding(with_tensors(name))(folder)
    ran = audit(str(folder), "--format", "json")
    assert (ran.code, ran.stderr) == (FINDINGS, "")
    [finding] = ran.outcome["findings"]
    assert (finding["kind"], finding["names"]) == ("unexpected", [name])


@pytest.mark.parametrize("form", ["json", "terminal", "csv"])
def test_all_hostile_names_together_are_reported_and_acted_upon_by_nobody(form, audit, tmp_path):
    folder = whole(tmp_path / "input")
    holding(with_tensors(*(name for _, name in HOSTILE)))(folder)
    ran = audit(str(folder), "--format", form)
    assert (ran.code, ran.stderr) == (FINDINGS, "")
    if form == "terminal":
        assert f"warning: unexpected ({len(HOSTILE)} names, " in ran.stdout
        assert max(map(len, ran.stdout.splitlines())) <= 1000


def test_a_checkpoint_without_tensors_lacks_them_all(audit, tmp_path):
    folder = whole(tmp_path / "input")
    holding(framed("{}"))(folder)
    ran = audit(str(folder), "--format", "json")
    assert ran.code == FINDINGS
    [finding] = ran.outcome["findings"]
    assert finding["kind"] == "missing"
    assert sorted(finding["names"]) == sorted(TENSORS)


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(" \n" + HEADER.decode(), id="white space before it"),
        pytest.param(inserted('"__metadata__":null'), id="metadata null"),
        pytest.param(
            inserted(f'"{WORDS}":{json.dumps(json.loads(HEADER)[WORDS])}'), id="a tensor twice"
        ),
    ],
)
def test_what_the_format_s_own_library_takes_is_clean(header, audit, tmp_path):
    folder = whole(tmp_path / "input")
    holding(framed(header, DATA))(folder)
    ran = audit(str(folder), "--format", "json")
    assert (ran.code, ran.stderr) == (CLEAN, "")
