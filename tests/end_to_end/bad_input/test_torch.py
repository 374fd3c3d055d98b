"""Torch files that are broken or hostile: each ends in a finding, and nothing in it is run."""

import struct
import zipfile
from pathlib import Path

import pytest
from support.bad_input.making import CONFIG, GOOD_CONFIG, TENSORS, cases, found, whole
from support.bad_input.making import assert_says as said
from support.bad_input.running import CLEAN, FINDINGS
from support.torch_files import (
    legacy_bytes,
    lengths,
    pickled,
    state,
    tensor,
    text,
    torch_bytes,
    zipped,
)

WEIGHTS = "pytorch_model.bin"
BODY = b"".join(text(name) + tensor(str(n), *one) for n, (name, one) in enumerate(TENSORS.items()))
GOOD = torch_bytes(TENSORS)
MANY = b"\x80\x02]" + b"N0" * 4_000_000 + b"."
# The costliest that was found to fit: lists that hold lists, each remembered, and short strings.
COSTLY = b"\x80\x04(" + b"]\x94" * 190_000 + b"N" * 500_000 + b"l."
NESTED = b"\x80\x02" + b"]" * 190_000 + b"a" * 189_999 + b"."


def doubling(levels: int = 60) -> bytes:
    """A dict of two names for a dict of two names for ...; 2^60 tensors in 3 kB."""
    content = b"\x80\x02" + tensor("0", "F32", (1,)) + b"q\0"
    for level in range(levels):
        below = b"h" + bytes([level])
        content += b"}q" + bytes([level + 1]) + b"(" + text("a") + below + text("b") + below + b"u"
    return content + b"."


def long_names() -> bytes:
    """A dict that is in itself under a thousand names of a kilobyte each."""
    names = (text(f"{n:04}" * 256) + b"h\0" for n in range(1000))
    return b"\x80\x02}q\0(" + b"".join(names) + text("a") + tensor("0", "F32", (1,)) + b"u."


def weights(content: bytes):
    def make(folder: Path) -> None:
        folder.mkdir(parents=True)
        (folder / CONFIG).write_bytes(GOOD_CONFIG)
        (folder / WEIGHTS).write_bytes(content)

    return make


def calling(opcodes: bytes) -> bytes:
    """The good state dict, and behind it what those opcodes do."""
    return zipped(b"\x80\x02" + opcodes + b"0}(" + BODY + b"u.", lengths(TENSORS))


RUN = "touch proof"  # in the folder where the audit runs, which must stay empty
CALL = b"cposix\nsystem\n(" + text(RUN) + b"tR"

ROWS = (
    found("a call of os.system", weights(calling(CALL)), "unsafe", "posix.system..touch proof"),
    found(
        "a call of eval",
        weights(calling(b"cbuiltins\neval\n(" + text("__import__('os')") + b"tR")),
        "unsafe",
        "builtins.eval",
    ),
    found(
        "a call by INST",
        weights(calling(b"(" + text(RUN) + b"iposix\nsystem\n")),
        "unsafe",
        "posix.system",
    ),
    found(
        "a call by OBJ",
        weights(calling(b"(cposix\nsystem\n" + text(RUN) + b"o")),
        "unsafe",
        "posix.system",
    ),
    found(
        "a name with escapes",
        weights(calling(b"c\x1b[2J\x07\nevil\r\nN0")),
        "unsafe",
        r"\\x1b",
    ),
    found(
        "a call in a bare pickle of protocol 0",
        weights(b"cposix\nsystem\n(S'touch proof'\ntR."),
        "unsafe",
        "posix.system",
    ),
    found(
        "a call in the magic number of a legacy file",
        weights(b"\x80\x02" + CALL + b"."),
        "unsafe",
        "posix.system",
    ),
    found(
        "a call in the keys of a legacy file",
        weights(legacy_bytes(state({}), [])[:-1] + CALL + b"."),
        "unsafe",
        "posix.system",
    ),
    found(
        "a call before a fault",
        weights(zipped(b"\x80\x02" + CALL + b"\xff")),
        "unsafe",
        "posix.system",
    ),
    found("a pickle without an end", weights(zipped(b"\x80\x02}")), "bad-header", "cut off"),
    found("a stack underflow", weights(zipped(b"\x80\x02R.")), "bad-header", "an empty stack"),
    found("no mark", weights(zipped(b"\x80\x02u.")), "bad-header", "a mark that was not set"),
    found("a memo of nothing", weights(zipped(b"\x80\x02h\1.")), "bad-header", "recalls object 1"),
    found(
        "a memo at 2^32 - 1",
        weights(zipped(b"\x80\x02Nr" + b"\xff" * 4 + b"h\1.")),
        "bad-header",
        "an object at place 4,294,967,295",
    ),
    found(
        "an integer of 2 GB",
        weights(zipped(b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b".")),
        "bad-header",
        "an integer of 2,147,483,647 bytes",
    ),
    found(
        "a string of 2^63 bytes",
        weights(zipped(b"\x80\x04\x8d" + struct.pack("<Q", 2**63) + b".")),
        "bad-header",
        "a string of 9,223,372,036,854,775,808 bytes",
    ),
    found(
        "a string of 2^63 bytes in a legacy file",
        weights(legacy_bytes(b"\x80\x04\x8d" + struct.pack("<Q", 2**63) + b".")),
        "bad-header",
        "a string of 9,223,372,036,854,775,808 bytes",
    ),
    found("a dict in itself", weights(zipped(long_names(), [4])), "bad-header", "of more|deep"),
    found("2^60 tensors", weights(zipped(doubling(), [4])), "bad-header", "holds .* more than"),
    found("lists in lists", weights(zipped(NESTED)), "bad-header", "is nested more than 64"),
    found("too many opcodes", weights(zipped(MANY)), "bad-header", "more than 1,000,000 opcodes"),
    found(
        "all the bounds at once", weights(zipped(COSTLY)), "bad-header", "holds more than 120,000"
    ),
    found(
        "a zip bomb",
        weights(zipped(MANY * 20, pack=zipfile.ZIP_DEFLATED)),
        "bad-header",
        "8,388,608 are the most",
    ),
    found(
        "an endless legacy pickle",
        weights(legacy_bytes(b"\x80\x02(" + b"N" * 30_000_000)),
        "bad-header",
        "more than 1,000,000 opcodes",
    ),
    found(
        "a storage that is too short",
        weights(zipped(state(TENSORS), [1, *lengths(TENSORS)[1:]])),
        "bad-header",
        "has 1 bytes in the archive",
    ),
    found(
        "a dimension of 2^62",
        weights(zipped(pickled({"a": tensor("0", "F32", (2**62, 2**62), numel=1)}), [4])),
        "bad-header",
        "reaches to byte",
    ),
    found("a cut-off archive", weights(GOOD[:-9]), "bad-header", "it is truncated"),
    found("an empty file", weights(b""), "bad-size", "is empty: 0 bytes"),
    found("a tar archive", weights(bytes(257) + b"ustar" + bytes(300)), "bad-header", "a tar arch"),
    found("safetensors", weights(b"\x02" + bytes(7) + b"{}"), "bad-header", "a safetensors file"),
    found("a page", weights(b"<!doctype html><html>"), "bad-header", "an HTML or XML page"),
)


def test_no_file_that_torch_would_run_is_called_clean(audit, tmp_path):
    """Each holds the good state dict, which a reader that differs from torch's would read alone."""
    hostile_files = pytest.importorskip("fuzz.hostile_files", reason="needs torch's reader")
    held = hostile_files.around(state(TENSORS), [bytes(length) for length in lengths(TENSORS)])
    for number, content in enumerate(held.values()):
        weights(content)(folder := tmp_path / f"input{number}")
        ran = audit(str(folder), "--format", "json")
        assert ran.code == FINDINGS
        assert {one["kind"] for one in ran.outcome["findings"]} & {"bad-header", "unsafe"}


@pytest.mark.parametrize("row", cases(ROWS))
def test_a_hostile_torch_file_ends_in_a_finding(row, audit, tmp_path):
    row.spoil(tmp_path / "input")
    said(audit(str(tmp_path / "input"), "--format", "json"), row)


def test_a_checkpoint_whose_pickle_calls_is_tallied_all_the_same(audit, tmp_path):
    weights(calling(CALL))(tmp_path / "input")
    outcome = audit(str(tmp_path / "input"), "--format", "json").outcome
    assert outcome["observed"]["tensors"] == len(TENSORS)
    assert outcome["residual"] == 0
    [finding] = outcome["findings"]
    assert finding["imports"] == [f"posix.system('{RUN}')"]


@pytest.mark.parametrize("spoilt", [GOOD, calling(b"N")], ids=["good", "with a None"])
def test_the_same_file_without_it_audits_clean(spoilt, audit, tmp_path):
    weights(spoilt)(tmp_path / "input")
    assert audit(str(tmp_path / "input")).code == CLEAN


def test_a_call_in_a_torch_copy_is_told(audit, tmp_path):
    folder = whole(tmp_path / "input")
    (folder / WEIGHTS).write_bytes(calling(CALL))
    ran = audit(str(folder), "--format", "json")
    assert ran.code == FINDINGS
    assert [one["kind"] for one in ran.outcome["findings"]] == ["unsafe"]
