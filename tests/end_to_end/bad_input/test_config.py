"""Configs that are broken, or ask for what no checkpoint is."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from support.bad_input.making import (
    CONFIG,
    GOOD_CONFIG,
    PAGE,
    POINTER,
    Row,
    assert_says,
    cases,
    found,
    whole,
)
from support.bad_input.running import CLEAN, UNAUDITED
from support.checkpoints import TINY

MANY = 10**9


def holding(content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / CONFIG).write_bytes(content)


def saying(**changes: object) -> Callable[[Path], object]:
    """The config with these keys changed; `...` leaves one out."""
    values = {"architectures": ["BertModel"], **TINY, **changes}
    return holding(json.dumps({k: v for k, v in values.items() if v is not ...}).encode())


def long(size: int) -> Callable[[Path], object]:
    """The config, and zeros behind it that take no place on the disk."""

    def spoil(folder: Path) -> None:
        with (folder / CONFIG).open("r+b") as file:
            file.truncate(size)

    return spoil


def refused(name: str, says: str, **changes: object) -> Row:
    return found(name, saying(**changes), "bad-config", says)


def broken(name: str, content: bytes, says: str) -> Row:
    return found(name, holding(content), "bad-config", f"^config.json {says}")


def unaudited(name: str, reason: str, says: str, **changes: object) -> Row:
    says = f": {reason}: .*{says}"
    return Row(name=name, spoil=saying(**changes), code=UNAUDITED, kind=None, says=says)


TEXTS = (
    broken("empty", b"", "is empty: 0 bytes"),
    broken("an HTML page", PAGE, "is not JSON: .*DOCTYPE"),
    broken("cut off", GOOD_CONFIG[:-1], "is cut off: its JSON does not end before line 1"),
    broken("a Git LFS pointer", POINTER, "is a Git LFS pointer to a file of 411,553,788 bytes"),
    broken(
        "100,000 levels deep",
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        "is nested 100,000 levels deep, expected at most 128",
    ),
    broken("a million lists", b'{"a":[' + b"[]," * 10**6 + b"[]]}", "has some 2,000,003 JSON v"),
)
VALUES = (
    refused("hidden_size a float", r"^hidden_size is 4\.0, expected an integer", hidden_size=4.0),
    refused(
        "hidden_size negative",
        r"would have a negative size: \(.*, hidden_size -4\)",
        hidden_size=-4,
    ),
    found(
        "hidden_size zero",
        saying(hidden_size=0),
        "mismatched",
        r"^stored as \(\d.*\), expected \(.*0.*\)",
    ),
    refused("hidden_size no multiple of the heads", "hidden_size.*4.*3", num_attention_heads=3),
    refused("a billion layers", "would imply .*000,000,000 tensors", num_hidden_layers=MANY),
    refused("2^64 layers", "would imply .* tensors", num_hidden_layers=2**64),
    refused("640 digits of layers", "would imply .* tensors", num_hidden_layers=10**600),
    refused("10^30 words", r"more numbers than torch .*: \(vocab_size 1000+, ", vocab_size=10**30),
    refused("640 digits of words", r"vocab_size 1000+\.\.\. \(601 digits\)", vocab_size=10**600),
    refused("architectures an object", "^architectures is an object", architectures={"a": 1}),
    refused("model_type a number", "^model_type is 4, expected a string", model_type=4),
    refused("model_type of another", "BertModel, which is bert, .* 'gpt2'", model_type="gpt2"),
    refused("a dtype of no one", "^dtype is the string 'float1'", dtype="float1"),
    refused("a flag that is a string", "refuses it: tie_word_.* 'yes'", tie_word_embeddings="yes"),
    refused("no row for padding", "^pad_token_id is 11, .* has rows 0 to 10: ", pad_token_id=11),
    refused("padding beyond all rows", r"^pad_token_id is .*\(601 digits\)", pad_token_id=10**600),
    refused("labels in a list, for no head", "refuses it: id2label is a list", id2label=[]),
)
TIES = refused("ties that are no flag", "^tie_word_embeddings is the str", tie_word_embeddings="y")
LABELS = (
    refused("id2label a list", "^id2label is a list, expected an object", id2label=["a", "b"]),
    refused("id2label of words", "^a key of id2label is the string 'a'", id2label={"a": "b"}),
    refused("num_labels a float", r"^num_labels is 2\.5, expected an integer", num_labels=2.5),
)
REFUSALS = (
    unaudited("an unknown class", "unknown-architecture", "'NoSuch'", architectures=["NoSuch"]),
    unaudited(
        "neither class nor family",
        "unknown-architecture",
        "neither architectures nor a model_type",
        architectures=...,
        model_type=...,
    ),
    unaudited(
        "a class with control characters",
        "unknown-architecture",
        r"\\x1b\[31mBert.*\\n",
        architectures=["\x1b[31mBert\nModel\u202e\u0000"],
        model_type=...,
    ),
    unaudited(
        "a class of a megabyte",
        "unknown-architecture",
        r"architecture '.{0,200}'",
        architectures=["x" * 2**20],
        model_type="y" * 2**20,
    ),
    unaudited(
        "quantised by what has control characters",
        "unknown-layout",
        r"packed by .*\\x1b",
        quantization_config={"quant_method": "\x1b]0;owned\x07" + "g" * 5000},
    ),
    Row(
        name="17 MB",
        spoil=long(17 * 2**20),
        code=UNAUDITED,
        kind=None,
        says="too-large: .*config.json' has 17,825,792 bytes, expected at most 16,777,216",
    ),
    Row(
        name="10 TB",
        spoil=long(10**13),
        code=UNAUDITED,
        kind=None,
        says="too-large: .*config.json'",
    ),
)
ODD_BUT_TRUE = (
    ("a flag under a key that is not read", {"output_past": "yes"}),
    ("a negative number of labels, which means none", {"num_labels": -1}),
    ("no class, a family", {"architectures": ...}),
    ("class null, a family", {"architectures": None}),
    ("no class in the list", {"architectures": []}),
    ("NaN under a key that is not read", {"layer_norm_eps": float("nan")}),
    ("4,000 unknown keys", {f"key_{n}": n for n in range(4000)}),
    ("a huge number under a key that is not read", {"rows_of_training_data": 10**600}),
    ("70,000 empty objects", {"a": {str(n): {} for n in range(70_000)}}),
)


@pytest.mark.parametrize("row", cases((*TEXTS, *VALUES, *REFUSALS)))
def test_a_bad_config_ends_with_a_reason(row, audit, tmp_path):
    folder = whole(tmp_path / "input")
    row.spoil(folder)
    assert_says(audit(str(folder), "--format", "json"), row)


@pytest.mark.parametrize(
    ("target", "row"),
    [
        *(pytest.param("BertForTokenClassification", row, id=row.name) for row in LABELS),
        pytest.param("BertForMaskedLM", TIES, id=TIES.name),
    ],
)
def test_a_bad_key_that_only_a_head_asks_for_matters_to_that_head(target, row, audit, tmp_path):
    folder = whole(tmp_path / "input")
    row.spoil(folder)
    assert_says(audit(str(folder), "--as", target, "--format", "json"), row)


@pytest.mark.parametrize("changes", [pytest.param(c, id=name) for name, c in ODD_BUT_TRUE])
def test_what_is_odd_and_implies_the_same_tensors_is_clean(changes, audit, tmp_path):
    folder = whole(tmp_path / "input")
    saying(**changes)(folder)
    ran = audit(str(folder), "--format", "json")
    assert (ran.code, ran.stderr) == (CLEAN, "")
