"""GGUF files that lie about counts and lengths, or hold more than anybody should read."""

import pytest
from support.bad_input.making import Row, assert_says, cases, found
from support.bad_input.running import CLEAN
from support.gguf_files import (
    ARRAY,
    STRING,
    U8,
    U32,
    Pair,
    Tensor,
    array,
    gguf_bytes,
    model_pairs,
    string,
)

WIDTHS = {
    "block_count": 1,
    "embedding_length": 32,
    "feed_forward_length": 64,
    "attention.head_count": 2,
    "vocab_size": 64,
}
LLAMA = model_pairs("llama", WIDTHS)
LAYER = {
    "attn_norm": (32,),
    "attn_q": (32, 32),
    "attn_k": (32, 32),
    "attn_v": (32, 32),
    "attn_output": (32, 32),
    "ffn_norm": (32,),
    "ffn_gate": (64, 32),
    "ffn_up": (64, 32),
    "ffn_down": (32, 64),
}
TABLE = [
    Tensor("token_embd.weight", (64, 32)),
    Tensor("output_norm.weight", (32,)),
    *(Tensor(f"blk.0.{name}.weight", shape) for name, shape in LAYER.items()),
]
HUGE = 2**63


def bad(name: str, content: bytes, says: str, kind: str = "bad-header") -> Row:
    return found(name, lambda path: path.write_bytes(content), kind, says)


def pairs(*more: Pair) -> bytes:
    return gguf_bytes([*LLAMA, *more], TABLE)


FILES = (
    bad("2^63 tensors", gguf_bytes(LLAMA, TABLE, counts=(HUGE, None)), "declares 9,223,372,036,"),
    bad("escapes in a name", gguf_bytes(LLAMA, [Tensor("\x1b[2J\n", type=99)]), r"'\\x1b\[2J\\n'"),
    bad("cut in the data", gguf_bytes(LLAMA, TABLE)[:-5000], "is truncated", "bad-size"),
    bad(
        "a matrix of 2^60 numbers",
        gguf_bytes(LLAMA, [Tensor("token_embd.weight", (2**30, 2**30))], data=False),
        "is truncated",
        "bad-size",
    ),
    bad(
        "2^32 - 1 layers",
        gguf_bytes(model_pairs("llama", {**WIDTHS, "block_count": 2**32 - 1}), TABLE),
        "would imply .* tensors, expected at most 100,000",
        "bad-config",
    ),
    bad(
        "a width of null",
        gguf_bytes([*LLAMA[:2], *LLAMA[3:]], TABLE),
        "has no 'llama.embedding_length'",
        "bad-config",
    ),
    bad(
        "9,900 tensors that nobody knows",
        gguf_bytes(LLAMA, [*TABLE, *(Tensor(f"x.{n}", ()) for n in range(9_900))]),
        "",
        "unexpected",
    ),
)


@pytest.mark.parametrize("row", cases(FILES))
def test_a_bad_file_ends_in_a_finding(audit, tmp_path, row):
    path = tmp_path / "m.gguf"
    row.spoil(path)
    assert_says(audit(str(path), "--format", "json"), row)


STACKS = [
    Tensor(f"blk.{layer}.ffn_{part}_exps.weight", (count, 1, 1))
    for layer, count in enumerate([2**40, 4096, 4096, 4096])
    for part in ("gate", "up", "down")
]
# Of large metadata, what a file's pairs are; only the test that writes the file makes them.
HEAVY = {
    "1.2 million tokens": lambda: [("t", array(STRING, [string("")] * 1_199_000))],
    "a thousand arrays in an array": lambda: [
        ("t", array(ARRAY, [array(U8, [1] * 1000)] * 1000)),
    ],
    "arrays of ten million numbers": lambda: [
        (f"t{n}", array(U8, [1] * 1024)) for n in range(9900)
    ],
}


@pytest.mark.parametrize("arrays", HEAVY.values(), ids=HEAVY)
def test_metadata_that_are_much_and_true_are_stepped_over(audit, tmp_path, arrays):
    content = pairs(*((name, ARRAY, content) for name, content in arrays()))
    (tmp_path / "m.gguf").write_bytes(content)
    assert audit(str(tmp_path / "m.gguf"), "--format", "json").code == CLEAN


def test_more_experts_than_the_metadata_have_are_unexpected(audit, tmp_path):
    count = ("llama.expert_count", U32, 2)
    (tmp_path / "m.gguf").write_bytes(gguf_bytes([*LLAMA, count], [*TABLE, *STACKS], data=False))
    ran = audit(str(tmp_path / "m.gguf"), "--format", "json")
    assert {"unexpected", "bad-size"} <= {one["kind"] for one in ran.outcome["findings"]}
    assert ran.outcome["residual"] == 0


def test_the_same_file_unspoilt_is_clean(audit, tmp_path):
    (tmp_path / "m.gguf").write_bytes(pairs())
    assert audit(str(tmp_path / "m.gguf"), "--format", "json").code == CLEAN
