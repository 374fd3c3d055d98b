"""What is as large as its format allows costs no more than 64 MiB above a clean audit.

`assert_harmless` says so of each; those within the bounds, which cost more, are in `make hostile`.
"""

import re

import pytest
from hostile.large import large
from support.bad_input.making import whole
from support.bad_input.running import FINDINGS, UNAUDITED

HEADER = "too-large: the header of 'model.safetensors' has "
CASES = {
    "110,000 foreign names": (UNAUDITED, f"{HEADER}110,039 tensors, expected at most 100,000"),
    "300,000 foreign names": (UNAUDITED, HEADER),
    "560,000 foreign names": (UNAUDITED, HEADER),
    "metadata of 90 MB": (UNAUDITED, f"{HEADER}.* bytes, expected at most 12,582,912"),
    "100,000 names of 40 parts": (UNAUDITED, HEADER),
    "names of 4 kB, all dots": (FINDINGS, "no class of this family"),
    "a name of 12 MB": (
        FINDINGS,
        "has 12,00.* characters of tensor names, expected at most 5,242,880",
    ),
    "an index of three long names": (
        FINDINGS,
        "has 19,50.* characters of tensor names, expected at most 5,242,880",
    ),
    "an index of 100,000 shards": (FINDINGS, "names 100,000 files, expected at most 10,000"),
    "a config of a million tensors": (FINDINGS, "tensors, expected at most 100,000"),
    "a shape of a million dimensions": (FINDINGS, "no class of this family"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_huge_input_is_bounded_and_the_bound_is_named(name, audit, tmp_path):
    code, says = CASES[name]
    large()[name]()(tmp_path / "input")
    ran = audit(str(tmp_path / "input"), "--format", "json")
    assert ran.code == code
    reasons = [one["reason"] for one in ran.outcome["findings"]]
    assert re.search(says, "\n".join((ran.stderr, *reasons))), (ran.stderr, reasons)


def test_a_tokenizer_of_60_mb_takes_no_memory_and_is_reported_as_not_read(audit, tmp_path):
    """Parsed a second time for --values, it took 1.6 GB."""
    pytest.importorskip("numpy", reason="reads the numbers")
    folder = whole(tmp_path / "input")
    args = (str(folder), "--values", "--format", "json")
    without = audit(*args)
    entries = b'"a":1,' * 10_000_000
    (folder / "tokenizer.json").write_bytes(b'{"model":{"type":"BPE","vocab":{' + entries + b"}}}")
    ran = audit(*args, against=without)
    assert ran.code == without.code
    assert ran.peak < without.peak + 8 * 1024
    assert [one for one in ran.outcome["unchecked"] if "tokenizer.json" in one]
